//! The `askd` binary. Everything is in the library; see `cli`.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // rustls cannot choose between two providers by itself and panics at the first connection.
    #[cfg(feature = "remote")]
    if rustls::crypto::ring::default_provider().install_default().is_err() {
        return ExitCode::FAILURE;
    }
    askd::main()
}
