//! The inbox token of daemons that share a database: a new one holds at all of them, and the one before at none.

use crate::command_line::{err, out};
use crate::harness::{SOON, World, askd, within};
use crate::on_postgres::{Database, host, joins};
use crate::remote::Remote;
use std::io::{Read as _, Write as _, copy};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;

fn bearer(token: &str) -> String {
    format!("authorization: Bearer {token}\r\n")
}

fn status(host: &Remote, path: &str, token: &str) -> u16 {
    host.world.raw("GET", &format!("/api/v1{path}"), &bearer(token), "").0
}

/// Has each connection to this listener go to the next of these addresses.
fn spread(listener: TcpListener, over: [SocketAddr; 2]) {
    let pass = |mut from: TcpStream, mut to: TcpStream| {
        thread::spawn(move || {
            let _broken = copy(&mut from, &mut to);
            let _gone = to.shutdown(Shutdown::Write);
        });
    };
    thread::spawn(move || {
        for (client, at) in listener.incoming().zip(over.iter().cycle()) {
            let (Ok(client), Ok(daemon)) = (client, TcpStream::connect(at)) else { continue };
            pass(client.try_clone().unwrap(), daemon.try_clone().unwrap());
            pass(daemon, client);
        }
    });
}

#[test]
fn a_new_link_through_a_proxy_is_told_and_opens_every_daemon_at_once() {
    let Some(database) = Database::found() else { return };
    let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", proxy.local_addr().unwrap());
    let behind = |node| {
        let allowed = format!("[http]\nallowed_hosts = [\"{}\"]\n", proxy.local_addr().unwrap());
        let world = World::empty().in_files().with_binary().config(&allowed);
        Remote::ready(world.more_config(&database.settings(node)))
    };
    let (mut first, mut second) = (behind("host-1"), behind("host-2"));
    joins(&mut first);
    joins(&mut second);
    let mut token = first.world.token();
    spread(proxy, [first.world.address(), second.world.address()]);
    for _ in 0..3 {
        let made = askd().args(["link", "--new", "--url", &url]).env("ASKD_TOKEN", &token).output().unwrap();
        let link = out(&made);
        let (at, new) = link.trim().split_once("/#token=").unwrap_or_else(|| panic!("{link:?} {}", err(&made)));
        assert_eq!((at, made.status.code()), (&*url, Some(0)), "{}", err(&made));
        assert_ne!(new, token);
        new.clone_into(&mut token);
    }
    // Before either has heard of what the other made.
    for path in ["/me", "/asks?limit=1", "/me"] {
        let (made, text) = second.world.raw("POST", "/api/v1/inbox-token", &bearer(&token), "");
        assert_eq!(made, 201, "{text}");
        let made: serde_json::Value = serde_json::from_str(&text).unwrap();
        made["token"].as_str().unwrap().clone_into(&mut token);
        assert_eq!(status(&first, path, &token), 200, "{path}");
    }
    assert_eq!(status(&first, "/asks?limit=1", "nobodys"), 401);
}

/// Another daemon may have replaced it, because somebody has it who should not.
#[test]
fn a_daemon_that_is_cut_off_from_the_database_lets_nobody_in_by_the_token_that_is_kept_there() {
    let Some(database) = Database::found() else { return };
    let mut host = host(&database, "host-a");
    host.world = host
        .world
        .more_config("[web]\npeople = [{ name = \"ann\", token = \"token-of-ann-0123456789-0123456789\" }]\n");
    host.world.start();
    let token = host.world.token();
    let mut page = TcpStream::connect(host.world.address()).unwrap();
    let headers = format!("host: {}\r\n{}connection: close\r\n", host.world.address(), bearer(&token));
    page.write_all(format!("GET /api/v1/events HTTP/1.1\r\n{headers}\r\n").as_bytes()).unwrap();
    page.read_exact(&mut [0; 12]).unwrap();
    database.away(true);
    within(SOON, "the token to open nothing", || (status(&host, "/asks?state=open", &token) == 503).then_some(()));
    assert_eq!([status(&host, "/me", &token), status(&host, "/me", "another")], [503, 503]);
    assert_eq!(status(&host, "/events", &token), 503);
    page.set_read_timeout(Some(SOON)).unwrap();
    page.read_to_end(&mut Vec::new()).expect("an open page is closed");
    assert_eq!(status(&host, "/me", "token-of-ann-0123456789-0123456789"), 200, "hers is in the settings");
    database.away(false);
    within(SOON, "the token to open it again", || (status(&host, "/asks?state=open", &token) == 200).then_some(()));
    assert_eq!([status(&host, "/me", &token), status(&host, "/me", "another")], [200, 401]);
}
