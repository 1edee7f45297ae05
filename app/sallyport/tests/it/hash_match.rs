//! `sallyport match` on files.

use std::fs;

use crate::harness::{Home, text};

/// A hash of one byte, in hexadecimal digits.
fn hash(byte: u8) -> String {
    format!("{byte:02x}").repeat(144)
}

#[test]
fn an_index_is_built_and_queried_in_both_forms() {
    let home = Home::new();
    let path = |name: &str| home.dir.path().join(name).to_str().unwrap().to_owned();
    fs::write(path("known.txt"), format!("# known\n{}\n\n  {}\n{}\n", hash(10), hash(200), hash(10))).unwrap();
    fs::write(path("new.txt"), format!("{}\n{}\n{}\n", hash(210), hash(100), hash(10))).unwrap();
    let built = home.json(&["match", "build", &path("known.txt"), "--out", &path("known.idx")]);
    assert_eq!(built["hashes"], 3, "{built}");
    let query = |file: &str, options: &[&str]| {
        home.json(&[&["match", "query", &path("known.idx"), &path(file)], options].concat())
    };
    let found = query("new.txt", &[]);
    assert_eq!(found.as_array().unwrap().len(), 2, "{found}");
    // 144 times 10 squared.
    assert_eq!(
        (&found[0]["query"], &found[0]["row"], &found[0]["squared_distance"]),
        (&0.into(), &1.into(), &14_400.into())
    );
    assert_eq!((&found[1]["query"], &found[1]["row"], &found[1]["distance"]), (&2.into(), &0.into(), &0.0.into()));
    fs::write(path("new.bin"), [[210_u8; 144], [100; 144], [10; 144]].concat()).unwrap();
    assert_eq!(query("new.bin", &["--raw"]), found);
    assert_eq!(query("new.txt", &["--threshold", "119"]).as_array().unwrap().len(), 1);
    let table = text(&home.run(&["match", "query", &path("known.idx"), &path("new.txt")]).stdout);
    assert!(table.contains("120.00"), "{table}");
}

#[test]
fn wrong_hashes_and_indexes_are_refused_in_one_sentence() {
    let home = Home::new();
    let path = |name: &str| home.dir.path().join(name).to_str().unwrap().to_owned();
    let (good, index) = (path("good.txt"), path("good.idx"));
    fs::write(&good, hash(1)).unwrap();
    home.json(&["match", "build", &good, "--out", &index]);
    let bytes = fs::read(&index).unwrap();
    fs::write(path("cut.idx"), &bytes[..100]).unwrap();
    fs::write(
        path("changed.idx"),
        bytes.iter().enumerate().map(|(at, byte)| byte ^ u8::from(at == 50)).collect::<Vec<_>>(),
    )
    .unwrap();
    fs::write(path("short.txt"), format!("{}\nabc\n", hash(1))).unwrap();
    fs::write(path("short.bin"), [1; 150]).unwrap();
    for (words, code, says) in [
        (vec!["build", &path("short.txt"), "--out", &path("x.idx")], 5, "line 2: a hash has 288 hexadecimal digits"),
        (vec!["build", &path("short.bin"), "--raw", "--out", &path("x.idx")], 5, "its last hash has 6 of 144 bytes"),
        (vec!["build", &good], 2, "--out"),
        (vec!["build", &good, "--out", "/nonexistent/x.idx"], 1, "cannot write /nonexistent/x.idx"),
        (vec!["query", &path("cut.idx"), &good], 5, "it ends too early"),
        (vec!["query", &path("changed.idx"), &good], 5, "its checksum is wrong"),
        (vec!["query", &good, &good], 5, "it is no index"),
        (vec!["query", "/nonexistent/x.idx", &good], 2, "there is no file"),
        (vec!["query", &index, &good, "--threshold", "4000"], 2, "from 0 to 3060"),
    ] {
        let output = home.run(&[&["match"], words.as_slice()].concat());
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{words:?}: {said}");
        assert!(said.contains(says), "{words:?}: {said}");
    }
    assert!(!fs::exists(path("x.idx")).unwrap() && !fs::exists(path("x.idx.new")).unwrap());
}
