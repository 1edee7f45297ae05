//! curl commands and HAR files.

use std::process::Command;

use sallyport_inspect::{
    Record,
    export::{curl, har},
};

use crate::drive::{OK, Rig, post};

/// The arguments that a shell gives to curl for this command, and its standard input.
fn run_by_sh(command: &str) -> (Vec<String>, Vec<u8>) {
    let folder = std::env::temp_dir().join(format!("inspect-curl-{}-{:p}", std::process::id(), command));
    std::fs::create_dir_all(&folder).unwrap();
    let script = format!(
        "curl() {{ for word do printf '%s\\0' \"$word\" >> \"$FOLDER/words\"; done; \
         case \"$*\" in *@-*) cat > \"$FOLDER/input\";; esac; }}\n{command}"
    );
    let file = folder.with_extension("sh");
    std::fs::write(&file, script).unwrap();
    let output = Command::new("sh").arg(&file).env("FOLDER", &folder).current_dir(&folder).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{command}\n{output:?}");
    let words = std::fs::read(folder.join("words")).unwrap();
    let input = std::fs::read(folder.join("input")).unwrap_or_default();
    let names: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(names.iter().all(|name| name == "words" || name == "input"), "nothing else ran: {names:?}");
    std::fs::remove_dir_all(&folder).unwrap();
    std::fs::remove_file(&file).unwrap();
    let words = words.split(|byte| *byte == 0).map(|word| String::from_utf8(word.to_vec()).unwrap()).collect();
    (words, input)
}

fn behind<'a>(words: &'a [String], flag: &str) -> &'a str {
    &words[words.iter().position(|word| word == flag).unwrap() + 1]
}

#[test]
fn no_request_runs_anything_in_a_shell() {
    for path in [
        "/a'b",
        "/$(touch%20x)",
        "/$(touch$IFS./x)",
        "/`touch$IFS./x`",
        "/a\";touch$IFS./x;\"",
        "/a\\'b",
        "/-o/x",
        "/[1-3]{a,b}",
        "/../x",
        "/!!",
        "/a&b|c;d#e",
    ] {
        let mut rig = Rig::new();
        let exchange = rig.exchange(post(path, "text/plain", b"'; touch ./x; echo '\n$(touch ./x)\n@/etc/passwd"), OK);
        let (words, _) = run_by_sh(&curl(&exchange));
        assert_eq!(behind(&words, "--url"), format!("https://shop.example.com{path}"));
        assert_eq!(behind(&words, "--data-raw"), "'; touch ./x; echo '\n$(touch ./x)\n@/etc/passwd");
        assert!(words.contains(&"--globoff".to_owned()) && words.contains(&"--path-as-is".to_owned()));
    }
}

#[test]
fn any_bytes_of_a_body_arrive() {
    let all: Vec<u8> = (0..=255).chain(0..=255).collect();
    for body in [&all[..], b"a\0b", b"%s%n%%", b"\\n\\0", &vec![b'\''; 200_000]] {
        let mut rig = Rig::new();
        let exchange = rig.exchange(post("/", "application/octet-stream", body), OK);
        let (words, input) = run_by_sh(&curl(&exchange));
        let sent = match words.contains(&"--data-binary".to_owned()) {
            true => input,
            false => behind(&words, "--data-raw").as_bytes().to_vec(),
        };
        assert_eq!(sent, body);
    }
}

#[test]
fn secrets_and_identity_are_left_out_and_said() {
    let mut rig = Rig::new();
    let exchange = rig.exchange(
        "GET /?token=x HTTP/1.1\r\nhost: a\r\nauthorization: Bearer x\r\nx-auth-email: ann@example.com\r\nx-empty:\r\n\
         x-forwarded-for: 192.0.2.1\r\naccept: */*\r\n\r\n",
        OK,
    );
    let command = curl(&exchange);
    assert!(command.starts_with("# Left out as secrets: authorization, values in the query\n"), "{command}");
    assert!(!command.contains("ann@") && !command.contains("192.0.2.1") && !command.contains("Bearer"), "{command}");
    let (words, _) = run_by_sh(&command);
    let headers: Vec<&String> = words.windows(2).filter(|pair| pair[0] == "--header").map(|pair| &pair[1]).collect();
    assert_eq!(headers, ["x-empty;", "accept: */*"]);
}

#[test]
fn exports_have_the_public_address() {
    let mut rig = Rig::new();
    let head =
        "GET /v2/x HTTP/1.1\r\nhost: localhost:3000\r\nx-forwarded-host: shop.example.com\r\nx-request-id: r\r\n";
    rig.exchange(format!("{head}\r\n"), OK);
    let (request_id, target) = ("r".to_owned(), "/api/x?token=1".to_owned());
    rig.record(Record { request_id, target, ..Record::default() });
    let command = curl(rig.last());
    assert!(command.contains("'https://shop.example.com/api/x?token=%5Bredacted%5D'"), "{command}");
}

#[test]
fn an_archive_has_decoded_bodies_and_messages() {
    let mut rig = Rig::new();
    rig.exchange(post("/form?a=%201&b", "application/x-www-form-urlencoded", b"x=1&password=p"), OK);
    rig.exchange("GET /bin HTTP/1.1\r\nhost: a\r\n\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n\0\xff\x01");
    rig.client("GET /ws HTTP/1.1\r\nhost: a\r\nupgrade: websocket\r\n\r\n");
    rig.service("HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\n\r\n");
    rig.service(b"\x81\x02hi");
    let mut exchanges: Vec<_> = rig.inspector.store().newest().cloned().collect();
    exchanges.reverse();
    let archive = har(&exchanges, "1");
    let entries = archive["log"]["entries"].as_array().unwrap();
    assert_eq!(archive["log"]["version"], "1.2");
    assert_eq!(entries[0]["request"]["queryString"][0], serde_json::json!({"name": "a", "value": " 1"}));
    assert_eq!(entries[0]["request"]["postData"]["text"], "x=1&password=%5Bredacted%5D");
    assert_eq!(entries[1]["response"]["content"]["encoding"], "base64");
    assert_eq!(entries[2]["_webSocketMessages"][0]["data"], "hi");
    assert_eq!(entries[2]["_webSocketMessages"][0]["type"], "receive");
}
