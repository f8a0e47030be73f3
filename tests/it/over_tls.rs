//! Both chat channels behind TLS, as in production: the real binary trusts what the host trusts, and nobody else gets a token.
//! The stand-ins speak plain HTTP, so a listener with a certificate stands before each.

use crate::harness::{World, choice, until};
use crate::in_slack::{ALICE, CHANNEL, Mode, STRANGER, in_slack};
use crate::on_whatsapp::{ADA, TO_ADA, sim};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// A listener with the certificate of `tests/it/tls` for this host, before one without.
struct Front {
    at: SocketAddr,
    /// `http://127.0.0.1:PORT`.
    behind: Arc<OnceLock<String>>,
}

fn made(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/tls").join(file)
}

impl Front {
    async fn open() -> Self {
        let _chosen_before = rustls::crypto::ring::default_provider().install_default();
        let certificates = CertificateDer::pem_file_iter(made("first-cert.pem")).unwrap().map(Result::unwrap).collect();
        let key = PrivateKeyDer::from_pem_file(made("first-key.pem")).unwrap();
        let mut config = ServerConfig::builder().with_no_client_auth().with_single_cert(certificates, key).unwrap();
        // As Meta and Slack offer.
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (at, behind) = (listener.local_addr().unwrap(), Arc::new(OnceLock::<String>::new()));
        let front = Self { at, behind: Arc::clone(&behind) };
        tokio::spawn(async move {
            while let Ok((line, _)) = listener.accept().await {
                let (acceptor, behind) = (acceptor.clone(), Arc::clone(&behind));
                tokio::spawn(async move {
                    let Ok(mut line) = acceptor.accept(line).await else { return };
                    let address = behind.get().unwrap().trim_start_matches("http://");
                    let mut plain = TcpStream::connect(address).await.unwrap();
                    let _ended = tokio::io::copy_bidirectional(&mut line, &mut plain).await;
                });
            }
        });
        front
    }

    fn url(&self) -> String {
        format!("https://{}", self.at)
    }

    fn stands_before(&self, url: &str) {
        self.behind.set(url.to_owned()).unwrap();
    }
}

/// The certificate that the daemon's host trusts.
fn trusted(world: &mut World, which: &str) {
    world.set_env("SSL_CERT_FILE", made(which).to_str().unwrap());
}

async fn on_whatsapp(which: &str) -> World {
    let front = Front::open().await;
    let mut world = World::empty().with_binary();
    trusted(&mut world, which);
    world.set_env("ASKD__WHATSAPP__API_URL", &format!("{}/v25.0", front.url()));
    let world = world.on_whatsapp(sim(), TO_ADA, "").await;
    front.stands_before(&world.phone.url());
    world.writes(ADA, "hello").await;
    world
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_goes_to_whatsapp_by_https_and_its_answer_comes_back() {
    let world = on_whatsapp("first-cert.pem").await;
    world.ask("r1", choice("Which?", &["a", "b"]));
    let question = world.shown(ADA, "Which?").await;
    world.phone.person_taps(&question, "b").unwrap();
    assert_eq!(world.response("r1").await["result"]["answers"]["Which?"], "b");
    world.shown(ADA, "Answered: b by Ada").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_impostor_of_whatsapp_gets_no_token() {
    let world = on_whatsapp("second-cert.pem").await;
    world.ask("r1", choice("Which?", &["a", "b"]));
    world.until("the log to say so", || world.log().contains("WhatsApp cannot be reached")).await;
    assert!(world.phone.calls().is_empty(), "{:?}", world.phone.calls());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_goes_to_slack_by_https_and_its_answer_comes_back_by_wss() {
    let front = Front::open().await;
    let public = Some(front.url());
    let mut world =
        in_slack(Mode::Socket).with_binary().key("0s", "1s").sim(|sim| sim.public_url = public).prepare().await;
    front.stands_before(world.slack.url());
    trusted(&mut world, "first-cert.pem");
    world.set_env("ASKD__SLACK__API_URL", &format!("{}/api", front.url()));
    world.begin().await;
    world.ask("r1", choice("Which?", &["a", "b"]));
    let card = world.card(CHANNEL).await;
    // What only one person is to see goes to the address that came with their click.
    world.slack.click(CHANNEL, &card.ts, "pick:0:0", STRANGER).await.unwrap();
    world.told(STRANGER, STRANGER).await;
    let delivery = world.slack.click(CHANNEL, &card.ts, "pick:0:1", ALICE).await.unwrap();
    assert!(delivery.socket && delivery.acknowledged, "{delivery:?}");
    assert_eq!(world.response("r1").await["result"]["answers"]["Which?"], "b");
    world.says(CHANNEL, &card.ts, "Answered: b by").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_impostor_of_slack_gets_no_token() {
    let front = Front::open().await;
    let public = Some(front.url());
    let mut world = in_slack(Mode::Socket)
        .with_binary()
        .key("0s", "1s")
        .without_waiting()
        .sim(|sim| sim.public_url = public)
        .prepare()
        .await;
    front.stands_before(world.slack.url());
    trusted(&mut world, "second-cert.pem");
    world.set_env("ASKD__SLACK__API_URL", &format!("{}/api", front.url()));
    world.begin().await;
    let said = || world.log().contains("cannot connect to Slack (Socket Mode)").then_some(());
    until("the log to say so", crate::harness::SOON, said).await;
    assert!(world.slack.calls().is_empty());
}
