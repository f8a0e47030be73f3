//! Strangers without a secret or token: they cannot keep a webhook or a health check waiting, and they fill neither the
//! memory nor the log.

use crate::harness::{SOON, World};
use hmac::{Hmac, KeyInit as _, Mac as _};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const SECRET: &str = "the-app-secret";

fn world() -> World {
    World::empty()
        .config(
            "[groups.g]\nroutes = [{ channel = \"web\" }]\n[whatsapp]\naccess_token = \"t\"\napp_secret = \"the-app-secret\"\n\
             verify_token = \"v\"\nphone_number_id = \"1\"\napi_url = \"http://127.0.0.1:9/v1\"\n",
        )
}

fn signed(address: SocketAddr) -> String {
    let body = r#"{"object":"whatsapp_business_account","entry":[]}"#;
    let mut mac = Hmac::<sha2::Sha256>::new_from_slice(SECRET.as_bytes()).unwrap();
    mac.update(body.as_bytes());
    let signature = hex::encode(mac.finalize().into_bytes());
    format!(
        "POST /whatsapp/webhook HTTP/1.1\r\nhost: {address}\r\nx-hub-signature-256: sha256={signature}\r\n\
         content-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
}

/// One request on a connection of its own: its status, or nothing in time.
async fn status(address: SocketAddr, request: &str, bound: Duration) -> Option<u16> {
    let call = async {
        let mut stream = TcpStream::connect(address).await.ok()?;
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut reply = String::new();
        stream.read_to_string(&mut reply).await.ok()?;
        reply.split(' ').nth(1)?.parse().ok()
    };
    tokio::time::timeout(bound, call).await.ok()?
}

/// Sends this and then a byte now and then, reads nothing, and starts again when it is cut off.
async fn hold(address: SocketAddr, first: String, more: bool) {
    loop {
        if let Ok(mut stream) = TcpStream::connect(address).await {
            let mut sent = stream.write_all(first.as_bytes()).await;
            // A silent one learns from the end of the stream that it has to start again.
            while sent.is_ok() && more {
                tokio::time::sleep(Duration::from_millis(500)).await;
                sent = stream.write_all(b"x").await;
            }
            while !more && sent.is_ok() {
                let mut byte = [0; 512];
                match stream.read(&mut byte).await {
                    Ok(0) | Err(_) => break,
                    Ok(_) => {}
                }
            }
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// N3: 2,000 forged webhooks are one line at once, and one a minute with how many there were.
#[test]
fn warnings_that_strangers_cause_are_counted() {
    let world = world().started();
    let headers = format!("x-hub-signature-256: sha256={}\r\n", "0".repeat(64));
    for _ in 0..2_000 {
        assert_eq!(world.raw("POST", "/whatsapp/webhook", &headers, "{}").0, 401);
    }
    let refused = || {
        let lines = world.log();
        lines
            .lines()
            .filter(|line| line.contains("a webhook of WhatsApp was refused"))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(refused().len(), 1, "{:#?}", refused());
    world.passing(SOON * 3, "the count", || (refused().len() == 2).then_some(()));
    assert!(refused()[1].contains("the signature is wrong (2,000 times in the last minute)"), "{:#?}", refused());
}

mod measures {
    use super::*;

    /// N2, N4.
    #[test]
    #[ignore = "measures: tests/run plays it last and alone"]
    fn strangers_keep_no_webhook_and_no_health_check_waiting() {
        let world = world().with_binary().started();
        let (address, token) = (world.address(), world.token());
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        // What askd takes to start is no stranger's: it has set its webhook up, and taken one, before anybody comes.
        let first = runtime.block_on(status(address, &signed(address), Duration::from_secs(5)));
        assert_eq!(first, Some(200));
        std::thread::sleep(Duration::from_secs(1));
        let before = world.peak_memory();
        let (health, webhooks) = runtime.block_on(async {
            let half_open = format!("GET /healthz HTTP/1.1\r\nhost: {address}\r\nx-slow: ");
            let unsigned = format!(
                "POST /whatsapp/webhook HTTP/1.1\r\nhost: {address}\r\nx-hub-signature-256: sha256={}\r\n\
             content-length: 200000\r\n\r\n{}",
                "0".repeat(64),
                "y".repeat(100_000)
            );
            let stream =
                format!("GET /api/v1/events HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\n\r\n");
            for (times, first, more) in [(400, half_open, true), (64, unsigned, true), (256, stream, false)] {
                for _ in 0..times {
                    tokio::spawn(hold(address, first.clone(), more));
                }
            }
            // All of them have come, and many again.
            tokio::time::sleep(Duration::from_secs(4)).await;
            let check = format!("GET /healthz HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
            let webhook = signed(address);
            let (mut health, mut webhooks) = (Vec::new(), Vec::new());
            for _ in 0..100 {
                let begun = Instant::now();
                if status(address, &check, Duration::from_secs(1)).await == Some(200) {
                    health.push(begun.elapsed());
                }
                let begun = Instant::now();
                if status(address, &webhook, Duration::from_millis(2_500)).await == Some(200) {
                    webhooks.push(begun.elapsed());
                }
            }
            (health, webhooks)
        });
        let memory = world.peak_memory() - before;
        eprintln!(
            "{} of 100 health checks, {:?} at most; {} of 100 webhooks, {:?} at most; {memory} MiB more",
            health.len(),
            health.iter().max(),
            webhooks.len(),
            webhooks.iter().max()
        );
        assert_eq!((health.len(), webhooks.len()), (100, 100));
        assert!(memory <= 32, "{memory} MiB");
        runtime.shutdown_background();
    }
}
