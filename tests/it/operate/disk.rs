//! Disk failures while the server runs: full, which is temporary, and broken, which is not.

use std::process::Command;

use expect_test::expect;
use serde_json::json;

use super::ANN;
use crate::harness::{
    Answer, Backend, Client, EXECUTABLE, Folder, Process, Setup, run_in_namespace, wait_until,
};

/// Nothing is lost, reads still succeed, and so does everything once there is space again.
#[test]
fn disk_full_while_serving_recovers_when_space_is_freed() {
    let folder = Folder::new();
    let script = r#"
        mount -t tmpfs -o size=1m none "$1"
        cd "$1"
        "$2" serve --open --listen 127.0.0.1:0 --database sqlite:nouns.db > said 2> /dev/null &
        server=$!
        trap 'kill $server' EXIT
        until grep -qs serving said; do sleep 0.01; done
        base=$(sed -n 's/.* at //p' said)
        # In variables: soon no file can be written here.
        post() { answer=$(curl -qsS --json "$ANN" -w ' %{http_code}' "$base/customers"); }
        show() { echo "${answer##* }" $(echo "$answer" | grep -o 'problems/[a-z-]*'); }
        post; show
        cat /dev/zero > filler 2>/dev/null || true
        # The log file may have some room of its own left.
        for i in 1 2 3 4 5 6 7 8; do post; done
        show
        echo "$(curl -qsS "$base/customers" | grep -o '"id"' | wc -l) $(curl -qsS "$base/-/ready")"
        rm filler
        post; show
        trap - EXIT
        kill $server
        wait $server
    "#;
    let ended = run_in_namespace(folder.path(), &format!("ANN='{ANN}'\n{script}"));
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{}", ended.stdout);
    expect![[r#"
        201
        503 problems/unavailable
        1 {"status":"ready"}
        201
    "#]]
    .assert_eq(&ended.stdout);
}

/// A file size limit simulates a disk that fails writes: the commit fails, and it is
/// unknown how much of it is stored.
#[test]
fn commit_failure_stops_writing_until_a_restart() {
    let folder = Folder::new();
    let script =
        "trap '' XFSZ; ulimit -f 300; exec \"$0\" serve --open --listen 127.0.0.1:0 --log json";
    let mut command = Command::new("bash");
    command.args(["-c", script, EXECUTABLE]).env_clear().current_dir(folder.path());
    let server = Process::spawn(&mut command);
    let line = server.first_line();
    let address = line.rsplit_once("http://").unwrap().1.parse().unwrap();
    let ask =
        |line: &str, body: &str| -> Answer { Client::connect(address).request(line, &[], body) };

    let body =
        json!({"customer": {"name": "x".repeat(150), "email": "ann@example.com"}}).to_string();
    let mut answered = 0;
    let failed = wait_until("a write fails", || {
        let answer = ask("POST /customers", &body);
        answered += usize::from(answer.status == 201);
        (answer.status != 201).then_some(answer)
    });
    assert_eq!((failed.status, failed.problem().as_str()), (503, "outcome-unknown"));
    assert_eq!(failed.header("Retry-After"), Some("60"));
    assert!(answered > 0);
    // Writes are not retried; reads still succeed.
    assert_eq!(ask("POST /customers", ANN).problem(), "unavailable");
    assert_eq!(ask("GET /-/ready", "").problem(), "unavailable");
    assert_eq!((ask("GET /customers", "").status, ask("GET /-/health", "").status), (200, 200));

    server.signal("TERM");
    let ended = server.end();
    assert_eq!(ended.code, Some(0));
    assert!(
        ended.stderr.contains(
            "the writer has stopped; reads continue; check the disk and restart the server"
        ),
        "{}",
        ended.stderr
    );
    let server = Setup::new(Backend::Sqlite).start_in(folder);
    let list = server.get("/customers?limit=500").json()["customers"].as_array().unwrap().len();
    assert!(
        (answered..=answered + 1).contains(&list),
        "{answered} were answered, {list} are there"
    );
    server.create("/customers", ANN);
}
