//! A flood in a group's folder, or of connections, costs the daemon little and costs other groups nothing.

use crate::harness::{Agent, SOON, World, within};
use notify::event::{EventKind, ModifyKind, RenameMode};
use notify::{RecursiveMode, Watcher as _};
use serde_json::json;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

mod measures {
    use super::*;

    /// B4: a restarted agent asks the same question while askd cannot tell yet whether its old process lives.
    #[test]
    #[ignore = "measures: tests/run plays it last and alone"]
    fn waiting_for_an_old_process_to_be_judged_costs_next_to_nothing() {
        let world = World::process();
        let agent = world.group("g");
        let fields =
            |process: &str| json!({"idempotency_key": "k", "process": process, "questions": [{"question": "Go?"}]});
        agent.ask("old", &fields("p1"));
        assert_eq!(world.answer(&world.one_open(), &json!({"Go?": "yes"})).0, 200);
        agent.wait("old");
        let renames = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&renames);
        let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            if event.is_ok_and(|event| event.kind == EventKind::Modify(ModifyKind::Name(RenameMode::From))) {
                counted.fetch_add(1, Ordering::SeqCst);
            }
        })
        .unwrap();
        watcher.watch(&agent.tasks(), RecursiveMode::NonRecursive).unwrap();
        let (begun, before) = (Instant::now(), world.processor_time());
        agent.ask("new", &fields("p2"));
        let response = agent.wait("new");
        let (took, used) = (begun.elapsed(), world.processor_time().saturating_sub(before));
        let renames = renames.load(Ordering::SeqCst);
        println!("given after {took:?}: {renames} renames, {used:?} of processor time");
        assert_eq!(response["result"]["answers"]["Go?"], "yes");
        assert!(took > Duration::from_secs(5), "there was something to wait for: {took:?}");
        assert!(renames <= 60, "{renames} renames");
        assert!(used <= Duration::from_millis(300), "{used:?}");
    }

    /// How many names one look takes, and how long it is until the next one.
    const A_LOOK: u32 = 20_000;
    const LOOK_EVERY: Duration = Duration::from_secs(5);

    /// Ends a thread that goes on until it is told, also when a story fails.
    struct Ends<'a>(&'a AtomicBool);

    impl Drop for Ends<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    /// As many names of 205 bytes as needed.
    fn litter(agent: &Agent, files: u32) {
        let pad = "x".repeat(190);
        for number in 0..files {
            fs::File::create(agent.tasks().join(format!("{number:010}{pad}.json"))).unwrap();
        }
    }

    /// B9: a container that floods its own folder has to wait longer; no other group does.
    #[test]
    #[ignore = "measures: tests/run plays it last and alone"]
    fn a_look_has_a_bound_and_a_partial_look_proves_no_absence() {
        // Their names alone are more than the memory that the daemon may take.
        const FILES: u32 = 200_000;
        let world = World::process();
        let (flooded, honest) = (world.group("flooded"), world.group("honest"));
        let fields =
            |process: &str| json!({"idempotency_key": "k", "process": process, "questions": [{"question": "Go?"}]});
        let sign = flooded.tasks().join(".alive-p1");
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            // Whatever ends this story ends the signs of life too.
            let _ends = Ends(&over);
            scope.spawn(|| {
                for beat in 0_u64.. {
                    if over.load(Ordering::SeqCst) {
                        break;
                    }
                    fs::write(&sign, beat.to_string()).unwrap();
                    std::thread::sleep(Duration::from_secs(1));
                }
            });
            let before = world.peak_memory();
            litter(&flooded, FILES);
            // Other groups are served as before.
            let begun = Instant::now();
            honest.ask_framework("r1");
            world.open_of("r1");
            let took = begun.elapsed();
            // So is an honest agent in the same folder.
            flooded.ask("first", &fields("p1"));
            // The flood may have taken the place of its event; then a look meets it at its turn.
            let met = || world.open().into_iter().find(|ask| ask["request_id"] == "first");
            let first = within(LOOK_EVERY * (FILES / A_LOOK) + SOON, "a look to meet the request", met);
            assert_eq!(world.answer(&first, &json!({"Go?": "yes"})).0, 200);
            flooded.wait("first");
            flooded.ask_framework("withdrawn");
            world.open_of("withdrawn");
            flooded.cancel("withdrawn");
            assert_eq!(flooded.wait("withdrawn")["result"]["reason"], "system");
            // Long enough for a process to be judged.
            let (start, used) = (Instant::now(), world.processor_time());
            within(SOON, "25 s", || (start.elapsed() > Duration::from_secs(25)).then_some(()));
            let share = world.processor_time().saturating_sub(used).as_secs_f64() / start.elapsed().as_secs_f64();
            let memory = world.peak_memory() - before;
            eprintln!("another group after {took:?}; {memory} MiB more, {:.1} % of a core", share * 100.0);
            flooded.ask("second", &fields("p2"));
            assert_eq!(flooded.wait("second")["result"]["status"], "answered");
            assert!(flooded.response("first").is_some(), "its process gives signs of life: the response stays");
            assert!(took < Duration::from_secs(1), "{took:?}");
            assert!(memory <= 32, "{memory} MiB");
            assert!(share < 0.10, "{share}");
            let warned: Vec<String> =
                world.log().lines().filter(|line| line.contains(" WARN ")).map(str::to_owned).collect();
            assert_eq!(warned.len(), 1, "{warned:#?}");
            assert!(warned[0].contains("more than 20000 names"), "{warned:?}");
        });
    }
}
