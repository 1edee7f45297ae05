//! `sallyport inspect tcp` on real connections.

use std::{
    fs,
    io::Write as _,
    net::{TcpListener, TcpStream},
};

use crate::harness::{Home, text};

#[test]
fn a_program_that_does_not_read_is_named_and_drawn() {
    let home = Home::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (_deaf, _) = listener.accept().unwrap();
    sender.set_nonblocking(true).unwrap();
    // Until all buffers are full.
    while sender.write(&[7; 65_536]).is_ok() {}
    let file = home.dir.path().join("windows.svg");
    let words = ["inspect", "tcp", &port, "--for", "500ms", "--svg", file.to_str().unwrap()];
    let seen = home.json(&words);
    let connections = seen["connections"].as_array().unwrap();
    assert_eq!(connections.len(), 2, "both ends: {seen}");
    let receiver =
        connections.iter().find(|one| one["local"].as_str().unwrap().ends_with(&format!(":{port}"))).unwrap();
    assert_eq!(receiver["limit"], "receiver-application", "{}", receiver["sentence"]);
    assert!(receiver["readings"].as_array().unwrap().len() > 1);
    let drawing = fs::read_to_string(&file).unwrap();
    assert!(drawing.starts_with("<svg") && drawing.contains(&port), "{drawing}");
    let lines = text(&home.run(&words[..5]).stdout);
    assert!(lines.contains(&format!("127.0.0.1:{port} to ")) && lines.contains("coalesced"), "{lines}");
}

#[test]
fn what_cannot_be_watched_is_refused_in_one_sentence() {
    let home = Home::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let nobody = listener.local_addr().unwrap().port().to_string();
    for (words, code, says) in [
        (&["x"][..], 2, "expected a port, pid:NUMBER, or a flow"),
        (&["70000"], 2, "expected a port"),
        (&[nobody.as_str()], 4, "has no TCP connections"),
        (&["pid:4194304"], 4, "there is no process 4194304"),
        (&["443", "--for", "20m"], 2, "at most 10m"),
        (&["443", "--every", "0ms"], 2, "--every"),
        (&["443", "--for", "10m", "--every", "1ms"], 2, "readings of each connection"),
        (&["443", "--svg", "/nonexistent/a.svg"], 1, "cannot write /nonexistent/a.svg"),
    ] {
        let output = home.run(&[&["inspect", "tcp"], words].concat());
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{words:?}: {said}");
        assert!(said.contains(says), "{words:?}: {said}");
    }
}
