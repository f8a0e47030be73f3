//! What is shipped for running askd elsewhere fits the program: the example settings, those of the image, its
//! health check. `tests/docker/run` runs the images in a real Engine.

use crate::harness::{World, askd};
use askd::testing::{Clock, Engine, EngineError, Means, Settings};
use askd_core::ChannelName;
use std::fs;
use std::path::{Path, PathBuf};

fn shipped(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// Reads settings with the secrets that they name.
fn loaded(text: &str) -> Settings {
    let dir = tempfile::tempdir().unwrap();
    Settings::load(&[written(dir.path(), text)]).unwrap()
}

/// Writes settings, and the secrets that they name.
fn written(dir: &Path, text: &str) -> PathBuf {
    for line in text.lines().filter(|line| line.contains("_file = ")) {
        let secret = dir.join(line.split('"').nth(1).unwrap().strip_prefix("/run/secrets/").unwrap());
        let says = match secret.file_name().unwrap().to_str().unwrap() {
            "slack_app_token" => "xapp-a-secret\n",
            "postgres_url" => "postgres://askd:secret@db.example.com/askd\n",
            _ => "xoxb-a-secret-that-nobody-guesses\n",
        };
        fs::create_dir_all(secret.parent().unwrap()).unwrap();
        fs::write(secret, says).unwrap();
    }
    let file = dir.join("askd.toml");
    fs::write(&file, text.replace("/run/secrets", dir.to_str().unwrap())).unwrap();
    file
}

/// The manifest of the daemons that anyone may call, and that of a daemon whose pod has an agent with a folder.
fn daemons() -> [String; 2] {
    ["askd", "folders"].map(|name| fs::read_to_string(shipped(&format!("deploy/kubernetes/{name}.yaml"))).unwrap())
}

/// The settings in the manifests.
fn of_the_manifests() -> String {
    let [manifest, _] = daemons();
    let (_, text) = manifest.split_once("  askd.toml: |\n").unwrap();
    let lines = text.lines().take_while(|line| *line != "---").map(|line| line.trim_start_matches("    "));
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn the_example_settings_are_read() {
    let text = fs::read_to_string(shipped("config/example.toml")).unwrap();
    // Whoever mounts the Engine's socket takes the comment sign off.
    assert!(text.contains("\n# session = {"));
    let settings = loaded(&text.replace("\n# session = {", "\nsession = {"));
    assert_eq!(settings.access.gid, Some(1500));
    assert!(settings.slack.is_some() && settings.whatsapp.is_some() && settings.web.token.is_some());
    let research = settings.group(&"research".parse().unwrap()).unwrap();
    assert!(matches!(&research.session.start, Some(Means::Docker(name)) if name == "agent-research"));
    let channels: Vec<ChannelName> = research.routes.iter().map(|route| route.channel).collect();
    assert_eq!(channels, [ChannelName::SLACK, ChannelName::WHATSAPP, ChannelName::WEB]);
    assert!(settings.group(&"another".parse().unwrap()).is_none(), "only named groups are served");
}

/// An agent's pod calls a service that the manifest has, by a name that the daemons know.
#[test]
fn pods_of_agents_call_a_name_that_the_daemons_know() {
    let read = |name: &str| fs::read_to_string(shipped(name)).unwrap();
    let manifest = read("deploy/kubernetes/askd.yaml");
    let quoted = |line: &str| line.split('"').filter(|part| part.starts_with("askd")).map(str::to_owned).collect();
    let names: Vec<String> =
        manifest.lines().find(|line| line.contains("allowed_hosts = ")).map(quoted).unwrap_or_default();
    assert!(manifest.contains("\n  name: askd-agents\n"), "the service");
    for pod in ["deploy/kubernetes/agent.yaml", "deploy/examples/pod.yaml"] {
        let pod = read(pod);
        let url = pod.lines().find(|line| line.contains("ASKD_URL")).unwrap().split('"').nth(1).unwrap();
        let host = url.strip_prefix("http://").unwrap().strip_suffix(":8486").unwrap();
        assert_eq!(host.split('.').next(), Some("askd-agents"));
        let public = manifest.contains(&format!("public_url = \"{url}\""));
        assert!(public || names.contains(&host.to_owned()), "{host}: {names:?}");
    }
}

/// A person has dismissed the question, or nobody has answered it: asked again, it would come back to them. The pod that comes in
/// the place of one that was lost joins its question.
#[test]
fn a_job_asks_no_question_again_whose_outcome_it_has() {
    let manifest = fs::read_to_string(shipped("deploy/examples/pod.yaml")).unwrap();
    let help = String::from_utf8(askd().args(["ask", "--help"]).output().unwrap().stdout).unwrap();
    let codes = "0 answered, 2 usage, 3 cancelled, 4 timeout, 5 undeliverable, 6 blocked or rejected, 1 anything else";
    assert!(help.split_whitespace().collect::<Vec<_>>().join(" ").contains(codes), "{help}");
    for line in [
        "kind: Job",
        "restartPolicy: Never",
        "- action: FailJob",
        "onExitCodes: {containerName: agent, operator: In, values: [2, 3, 4, 5, 6]}",
        "valueFrom: {fieldRef: {fieldPath: \"metadata.labels['batch.kubernetes.io/controller-uid']\"}}",
    ] {
        assert!(manifest.lines().any(|known| known.trim() == line), "{line}");
    }
}

/// Its example settings hand files to a group.
#[test]
fn askd_is_in_the_group_of_the_example_settings_wherever_compose_starts_it() {
    for file in ["deploy/compose.yaml", "deploy/compose.cluster.yaml"] {
        let text = fs::read_to_string(shipped(file)).unwrap();
        assert!(text.contains("../config/example.toml") && text.contains("group_add: [\"1500\"]"), "{file}");
        assert!(!text.contains("`askd check"), "the host has no /run/secrets: {file}");
    }
}

/// Docker makes a folder in the place of a file that it is to mount and that is not there.
#[test]
fn the_commands_for_several_daemons_make_each_file_before_it_is_mounted() {
    let text = fs::read_to_string(shipped("deploy/compose.cluster.yaml")).unwrap();
    let commands: Vec<&str> = text.lines().filter(|line| line.starts_with("#   docker compose")).collect();
    let [daemons, token, all] = commands[..] else { panic!("{commands:?}") };
    assert!(daemons.contains(" up -d --wait askd-a askd-b proxy"), "the agent has no token yet: {daemons}");
    assert!(token.contains("token new") && token.ends_with("> secrets/agent_token"), "{token}");
    assert!(all.ends_with(" up -d"), "{all}");
    assert!(!text.contains("- ./"), "the short form makes a folder");
    assert_eq!(text.matches("type: bind").count(), text.matches("create_host_path: false").count());
}

/// Each daemon takes calls for as long as a Service still sends them, and is given the time to end.
#[test]
fn the_settings_in_the_manifests_are_read() {
    let settings = loaded(&of_the_manifests());
    assert!(settings.slack.is_some() && settings.postgres.url.is_some() && settings.postgres.listen_url.is_some());
    assert_eq!(settings.http.listen.port(), 8484);
    assert_eq!(settings.agents.listen.unwrap().port(), 8486);
    for manifest in daemons() {
        let value = |key: &str| manifest.lines().find_map(|line| line.trim().strip_prefix(key)).unwrap();
        let seconds = |key: &str| value(key).trim_end_matches(" }").parse::<u64>().unwrap();
        let grace = seconds("terminationGracePeriodSeconds: ");
        let needed = settings.http.stop_delay.as_secs() + seconds("sleep: { seconds: ") + 10;
        assert!(settings.http.stop_delay.as_secs() > 0 && grace >= needed, "{grace} s for {needed} s");
        for shared in ["configMap: { name: askd }", "secret: { secretName: askd, defaultMode: 0440 }"] {
            assert!(manifest.contains(shared), "{shared}");
        }
    }
    let looked_after = daemons().map(|manifest| {
        let lines = manifest.lines().skip_while(|line| line.trim() != "startupProbe:").map(str::trim);
        let lines =
            lines.take_while(|line| !line.starts_with("securityContext:")).filter(|line| !line.starts_with('#'));
        lines.map(str::to_owned).collect::<Vec<_>>()
    });
    assert!(looked_after[0].len() > 10 && looked_after[0] == looked_after[1], "{looked_after:#?}");
}

/// The settings that all daemons share name its group: else it would be another group at each of them.
#[test]
fn the_agent_in_a_daemons_pod_mounts_what_was_made_for_its_group() {
    let [_, manifest] = daemons();
    let value = |key: &str| manifest.lines().find_map(|line| line.trim().strip_prefix(key)).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (file, volume) = (written(dir.path(), &of_the_manifests()), dir.path().join("volume"));
    let data = value("- { name: ASKD__DATA_DIR, value: /var/lib/askd/").trim_end_matches(" }");
    assert!(manifest.contains("- { name: data, mountPath: /var/lib/askd }"));
    // If root runs this: askd asks whose it is to be.
    fs::create_dir_all(volume.join(data)).unwrap();
    let mut add = askd();
    add.args(value("args: [").trim_end_matches(']').split(", ")).args(["--config", file.to_str().unwrap()]);
    let added = add.env("ASKD__DATA_DIR", volume.join(data)).output().unwrap();
    assert!(added.status.success(), "{added:?}");
    let group = value("args: [group, add, ").trim_end_matches(']');
    assert!(loaded(&of_the_manifests()).configured().any(|known| known.as_str() == group), "{group}");
    let mounts: Vec<_> = manifest.lines().filter_map(|line| line.split_once("subPath: ")?.1.split_once(", ")).collect();
    for (from, to) in &mounts {
        assert!(volume.join(from).is_dir(), "{from}");
        let name = Path::new(from).file_name().unwrap().to_str().unwrap();
        assert_eq!(*to, format!("mountPath: /workspace/ipc/{name} }}"));
    }
    assert_eq!(mounts.len(), 3, "tasks, responses and briefings: {mounts:?}");
}

#[test]
fn the_settings_of_the_image_let_it_listen_for_the_host() {
    let dir = tempfile::tempdir().unwrap();
    // What the Dockerfile sets in the environment, here as a file: tests share one environment.
    let listen = dir.path().join("listen.toml");
    fs::write(&listen, "[http]\nlisten = \"0.0.0.0:8484\"\n").unwrap();
    assert!(Settings::load(std::slice::from_ref(&listen)).is_err(), "a name is needed");
    let settings = Settings::load(&[shipped("deploy/image.toml"), listen]).unwrap();
    assert!(settings.http.allowed_hosts.contains(&"127.0.0.1:8484".to_owned()));
    let dockerfile = fs::read_to_string(shipped("Dockerfile")).unwrap();
    for line in ["ASKD__HTTP__LISTEN=0.0.0.0:8484", "deploy/image.toml /etc/askd/askd.toml", r#"["/askd", "healthz"]"#]
    {
        assert!(dockerfile.contains(line), "{line}");
    }
}

#[test]
fn the_health_check_of_the_image_tells_well_from_gone() {
    let mut world = World::process();
    let check =
        |listen: &str| askd().arg("healthz").current_dir("/").env("ASKD__HTTP__LISTEN", listen).output().unwrap();
    let listen = world.address().to_string();
    let well = check(&listen);
    assert!(well.status.success() && well.stdout.is_empty(), "{}", String::from_utf8_lossy(&well.stderr));
    world.kill();
    let gone = check(&listen);
    assert_eq!(gone.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&gone.stderr).contains("no askd at http://127.0.0.1:"));
    assert_eq!(check("nowhere").status.code(), Some(2), "bad settings");
}

/// Against a real Engine: `tests/docker/run` names a container of it that runs.
#[tokio::test]
#[ignore = "needs a Docker Engine and ASKD_TEST_CONTAINER; tests/docker/run brings both"]
async fn a_real_engine_starts_and_stops_a_container() {
    let Ok(name) = std::env::var("ASKD_TEST_CONTAINER") else {
        println!("SKIPPED a container of a real Docker Engine: ASKD_TEST_CONTAINER is not set (tests/docker/run)");
        return;
    };
    let engine = Engine::new(std::env::var("DOCKER_HOST").ok().as_deref(), Clock::system());
    let first = engine.look(&name).await.unwrap();
    assert!(first.running && first.started_at.is_some(), "{first:?}");
    engine.start(&name).await.unwrap();
    assert_eq!(engine.look(&name).await.unwrap(), first, "it ran already: the same run");
    engine.stop(&name).await.unwrap();
    engine.stop(&name).await.unwrap();
    let stopped = engine.look(&name).await.unwrap();
    assert!(!stopped.running && stopped.run == first.run, "{stopped:?}");
    engine.start(&name).await.unwrap();
    let second = engine.look(&name).await.unwrap();
    assert!(second.running && second.run != first.run && second.started_at > first.started_at, "{second:?}");
    let error = engine.start(&format!("{name}-is-not-there")).await.unwrap_err();
    assert!(matches!(error, EngineError::NoContainer(_)), "{error}");
}

/// The Dockerfile sees only what `.dockerignore` lets through: the manifest has to work without the rest.
#[test]
fn the_image_is_built_from_what_it_is_given() {
    let dir = tempfile::tempdir().unwrap();
    let rules = fs::read_to_string(shipped(".dockerignore")).unwrap();
    for name in rules.lines().filter_map(|line| line.strip_prefix('!')) {
        let to = dir.path().join(name);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(shipped(name), to).unwrap();
    }
    // Cargo reads the whole manifest before it looks for this.
    let mut cargo = std::process::Command::new(env!("CARGO"));
    let cargo = cargo.args(["build", "--offline", "--locked", "--bin", "there-is-none"]).current_dir(dir.path());
    let said = String::from_utf8(cargo.output().unwrap().stderr).unwrap();
    assert!(said.contains("no bin target named"), "{said}");
}
