//! A hostile agent: root in its container, with its group's folders mounted. It does everything with names, types and
//! timing that a file system offers, as fast as it can. `attacks` starts it as a process of its own, bare or in a container.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FileType, Mode, RenameFlags, mknodat, renameat_with};

use crate::files;

/// What it attacks.
struct Plan {
    /// The group's folder with `tasks`, `responses` and `briefings`.
    group: PathBuf,
    /// Two of them, held: the intruder itself must not write where its own links lead.
    held: [File; 2],
    /// What must not be read or written: `secret.json`, `named-twice.json` and `target` lie there.
    outside: PathBuf,
    until: Instant,
}

/// How many operations there were, and how many of them the kernel refused.
static DONE: AtomicU64 = AtomicU64::new(0);
static REFUSED: AtomicU64 = AtomicU64::new(0);

/// Attacks for so many seconds; prints how many operations that were.
pub(crate) fn attack(group: &Path, outside: &Path, seconds: u64) -> std::io::Result<()> {
    let until = Instant::now() + Duration::from_secs(seconds);
    let held = [File::open(group.join("tasks"))?, File::open(group.join("responses"))?];
    let plan = Plan { group: group.to_owned(), held, outside: outside.to_owned(), until };
    litter(&plan);
    let races: [fn(&Plan, u64); 8] = [swap, second_name, replace_responses, squat, grow, steal, asks, replace_tasks];
    std::thread::scope(|scope| {
        for race in races {
            let plan = &plan;
            scope.spawn(move || {
                for nth in 0.. {
                    if Instant::now() > plan.until {
                        break;
                    }
                    race(plan, nth);
                }
            });
        }
    });
    let (done, refused) = (DONE.load(Ordering::SeqCst), REFUSED.load(Ordering::SeqCst));
    println!("{done} operations, {refused} of them refused by the kernel");
    Ok(())
}

/// A new file in place of what has this name: no link there is followed.
fn fresh(path: &Path, bytes: &[u8]) -> std::io::Result<File> {
    let _none = fs::remove_file(path);
    let mut file = File::options().write(true).create_new(true).open(path)?;
    file.write_all(bytes)?;
    Ok(file)
}

#[expect(clippy::needless_pass_by_value, reason = "a line for each thing that is done")]
fn did<T, E>(result: Result<T, E>) {
    DONE.fetch_add(1, Ordering::Relaxed);
    if result.is_err() {
        REFUSED.fetch_add(1, Ordering::Relaxed);
    }
}

fn request(id: &str) -> Vec<u8> {
    format!("{{\"type\":\"ask_user:ask\",\"request_id\":\"{id}\",\"questions\":[{{\"question\":\"From the intruder {id}?\"}}]}}").into_bytes()
}

fn exchange(one: &Path, other: &Path) {
    did(renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE));
}

impl Plan {
    fn tasks(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.held[0].as_raw_fd()))
    }

    fn responses(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.held[1].as_raw_fd()))
    }

    fn secret(&self) -> PathBuf {
        self.outside.join("secret.json")
    }

    /// A secret for second names: what has one is refused for that, whatever else is wrong with it.
    fn named_twice(&self) -> PathBuf {
        self.outside.join("named-twice.json")
    }
}

/// F1 to F7, F13: everything once that a name or a type can be.
fn litter(plan: &Plan) {
    let (tasks, secret) = (plan.tasks(), plan.secret());
    did(symlink(&secret, tasks.join("link.json")));
    did(symlink("../../../outside/secret.json", tasks.join("relative.json")));
    did(symlink("loop.json", tasks.join("loop.json")));
    did(symlink("/proc/self/environ", tasks.join("environ.json")));
    did(symlink("/etc/shadow", tasks.join("shadow.json")));
    did(fs::hard_link(plan.named_twice(), tasks.join("second.json")));
    did(fs::create_dir(tasks.join("folder.json")));
    for (name, kind, device) in [
        ("fifo.json", FileType::Fifo, 0),
        ("socket.json", FileType::Socket, 0),
        ("zero.json", FileType::CharacterDevice, rustix::fs::makedev(1, 5)),
        ("disk.json", FileType::BlockDevice, rustix::fs::makedev(7, 0)),
    ] {
        did(mknodat(CWD, tasks.join(name), kind, Mode::from_raw_mode(0o666), device));
    }
    did(File::create(tasks.join("sparse.json")).and_then(|file| file.set_len(10 << 40)));
    for name in [
        b"\xff\xfe.json".as_slice(),
        b"line\nfeed.json",
        b"tab\t.json",
        b"-rf.json",
        b"a b;$(reboot).json",
        b"\x1b[2J.json",
        &[b'x'; 255],
        b".hidden.json",
        b".claimed-00000000000000000000000000000000.json",
        b".alive-x",
        b"...json",
    ] {
        did(fresh(&tasks.join(std::ffi::OsStr::from_bytes(name)), &request("odd-name")));
    }
    // F2: ids that are paths.
    for (nth, id) in ["../../honest/responses/x", "/etc/cron.d/x", "..", ".", "a/b", "a\\u0000b", "", &"x".repeat(65)]
        .iter()
        .enumerate()
    {
        did(fresh(&tasks.join(format!("id{nth}.json")), &request(id)));
    }
    for (name, text) in [
        (
            "deep.json",
            format!("{{\"type\":\"ask_user:ask\",\"request_id\":\"deep\",\"questions\":{}", "[".repeat(100_000)),
        ),
        (
            "twice.json",
            "{\"type\":\"ask_user:ask\",\"request_id\":\"twice\",\"request_id\":\"other\",\"questions\":[]}".to_owned(),
        ),
        (
            "huge.json",
            format!(
                "{{\"type\":\"ask_user:ask\",\"request_id\":\"huge\",\"timeoutMs\":1e400,\"pad\":\"{}\"}}",
                "9".repeat(400_000)
            ),
        ),
    ] {
        did(fresh(&tasks.join(name), text.as_bytes()));
    }
    let odd = tasks.join("mode.json");
    did(fresh(&odd, &request("odd-mode")));
    did(fs::set_permissions(&odd, fs::Permissions::from_mode(0o6777)));
}

/// F4, F8: a request and a link to a secret change places.
fn swap(plan: &Plan, nth: u64) {
    let (file, link) =
        (plan.tasks().join(format!("swap{}.json", nth % 4)), plan.tasks().join(format!(".swap{}", nth % 4)));
    if nth < 4 || !file.exists() {
        did(fresh(&file, &request(&format!("swap-{nth}"))));
        did(fs::remove_file(&link));
        did(symlink(plan.secret(), &link));
    }
    exchange(&file, &link);
}

/// F5, F8: a request and a second name of a secret change places.
fn second_name(plan: &Plan, nth: u64) {
    let (file, second) = (plan.tasks().join("name.json"), plan.tasks().join(".name"));
    if nth == 0 || !file.exists() {
        did(fresh(&file, &request(&format!("name-{nth}"))));
        did(fs::remove_file(&second));
        did(fs::hard_link(plan.named_twice(), &second));
    }
    exchange(&file, &second);
}

/// F9, F10: the folder of responses becomes a link to another folder, again and again.
fn replace_responses(plan: &Plan, nth: u64) {
    replace(plan, &plan.group.join("responses"), nth);
}

/// F14: the same of the folder of requests.
fn replace_tasks(plan: &Plan, nth: u64) {
    if nth.is_multiple_of(50) {
        replace(plan, &plan.group.join("tasks"), nth);
    }
    std::thread::sleep(Duration::from_millis(1));
}

fn replace(plan: &Plan, folder: &Path, nth: u64) {
    let link = folder.with_extension("link");
    if link.symlink_metadata().is_err() {
        did(symlink(&plan.outside, &link));
    }
    exchange(folder, &link);
    std::thread::sleep(Duration::from_micros(nth % 700));
    exchange(folder, &link);
    std::thread::sleep(Duration::from_micros(500));
}

/// F11: the names of responses are taken before the responses come, by links, folders, FIFOs and files.
fn squat(plan: &Plan, nth: u64) {
    let folder = plan.responses();
    let id = format!("ask-{}", nth % 400);
    for name in [format!("{id}.json"), format!(".new-{id}"), format!("{id}.status"), format!(".taken-{id}.json")] {
        let path = folder.join(name);
        match (nth / 400) % 5 {
            0 => did(symlink(plan.outside.join("target"), &path)),
            1 => did(fs::create_dir(&path)),
            2 => did(mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o666), 0)),
            3 => did(fresh(&path, b"{\"result\":{\"status\":\"answered\"}}")),
            _ => {
                did(fs::remove_file(&path));
                did(fs::remove_dir(&path));
            }
        }
    }
    std::thread::sleep(Duration::from_micros(300));
}

/// F7, F12: a request that grows, shrinks and changes while it is read.
fn grow(plan: &Plan, nth: u64) {
    let path = plan.tasks().join("grows.json");
    let mut bytes = request(&format!("grow-{nth}"));
    bytes.resize(1 << (nth % 21), b' ');
    // By its handle: the daemon may give a claimed request its name back, which `steal` made a link to a secret meanwhile.
    match fresh(&path, &bytes[..bytes.len() / 2]) {
        Ok(mut file) => {
            did(file.write_all(&bytes[bytes.len() / 2..]));
            did(file.set_len(nth % (1 << 30)));
        }
        refused => did(refused),
    }
}

/// F12: whatever the daemon has claimed is changed, replaced by a link, or taken away.
fn steal(plan: &Plan, nth: u64) {
    for name in files::names(&plan.tasks()).into_iter().filter(|name| name.starts_with(".claimed-")).take(20) {
        let path = plan.tasks().join(name);
        match nth % 4 {
            0 => did(fs::remove_file(&path)),
            1 => did(fresh(&path, &request(&format!("stolen-{nth}")))),
            2 => {
                did(fs::remove_file(&path));
                did(symlink(plan.secret(), &path));
            }
            _ => did(fs::rename(&path, plan.tasks().join(format!("back{nth}.json")))),
        }
    }
    std::thread::sleep(Duration::from_micros(500));
}

/// Requests that are answered, so that responses are written into all of this.
fn asks(plan: &Plan, nth: u64) {
    let id = format!("ask-{}", nth % 400);
    did(files::publish(&plan.tasks(), &format!("{id}.json"), &request(&id), false));
    std::thread::sleep(Duration::from_millis(20));
}
