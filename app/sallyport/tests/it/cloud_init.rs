//! The user data that makes a fresh machine an edge, or one that announces by BGP.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Command, Output},
};

use serde_json::Value;

use crate::harness::text;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Both files of user data.
const BOTH: [&str; 2] = ["edge.yaml", "anycast-edge.yaml"];

/// The written files by path: mode and content.
fn files(name: &str) -> BTreeMap<String, (u32, String)> {
    let contents = fs::read_to_string(format!("{ROOT}/integrations/cloud-init/{name}")).unwrap();
    assert!(contents.starts_with("#cloud-config\n"), "cloud-init takes it for something else");
    let data: Value = serde_saphyr::from_str(&contents).unwrap();
    let word = |file: &Value, name: &str| file[name].as_str().unwrap().to_owned();
    let files = data["write_files"].as_array().unwrap().iter().map(|file| {
        let mode = u32::from_str_radix(&word(file, "permissions"), 8).unwrap();
        (word(file, "path"), (mode, word(file, "content")))
    });
    let files: BTreeMap<_, _> = files.collect();
    let run = data["runcmd"][0][0].as_str().unwrap();
    assert!(files[run].0 == 0o755, "what is run is written");
    files
}

#[test]
fn the_unit_is_the_one_of_systemd_and_secrets_are_for_root_alone() {
    for name in BOTH {
        let files = files(name);
        let unit = fs::read_to_string(format!("{ROOT}/integrations/systemd/sallyport-edge.service")).unwrap();
        let settings = |text: &str| text[text.find("[Unit]").unwrap()..].trim().to_owned();
        assert_eq!(settings(&files["/etc/systemd/system/sallyport-edge.service"].1), settings(&unit), "{name}");
        for (path, (mode, content)) in &files {
            assert!(!content.contains("SALLYPORT_JOIN=") || *mode == 0o600 || *mode == 0o755, "{path} {mode:o}");
        }
        assert_eq!(files["/etc/sallyport/edge.env"].0, 0o600);
    }
}

/// The lines of the environment of an edge, without comments.
fn settings_of(env: &str) -> BTreeMap<&str, &str> {
    env.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once('=')).collect()
}

#[test]
fn an_announcing_edge_and_its_bird_meet_in_one_folder() {
    let files = files("anycast-edge.yaml");
    let (mode, bird) = &files["/etc/bird/bird.conf"];
    assert_eq!(*mode, 0o640, "BIRD reads it as its own user");
    let env = settings_of(&files["/etc/sallyport/edge.env"].1);
    let written = Path::new(env["SALLYPORT_BIRD_CONFIG"]);
    let folder = written.parent().unwrap().display().to_string();
    assert!(
        bird.contains(&format!("include \"{folder}/*.conf\";")) && written.extension().unwrap() == "conf",
        "{bird}"
    );
    let more = &files["/etc/systemd/system/sallyport-edge.service.d/anycast.conf"].1;
    assert!(
        more.contains(&format!("ReadWritePaths={folder}\n")) && more.contains("SupplementaryGroups=bird"),
        "{more}"
    );
    assert!(more.contains("AmbientCapabilities=CAP_NET_ADMIN"), "{more}");
    for network in env["SALLYPORT_ANYCAST_ALLOW"].split(',') {
        assert!(network.parse::<ipnet::IpNet>().is_ok(), "{network}");
    }
    if Command::new("bird").arg("--version").output().is_err() {
        println!("skipped: bird is not there");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("bird.conf");
    let here = bird.replace(&folder, &dir.path().join("sallyport").display().to_string());
    // As on a machine with an address, also where this one has none.
    fs::write(&config, format!("router id 192.0.2.10;\n{here}")).unwrap();
    let judged = || {
        let output = Command::new("bird").args(["-p", "-c"]).arg(&config).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
    };
    // The script makes it before BIRD starts.
    fs::create_dir(dir.path().join("sallyport")).unwrap();
    judged();
    // As edges write it.
    fs::write(dir.path().join("sallyport/sallyport.conf"), "protocol device sp_device { scan time 10; }\n").unwrap();
    judged();
}

/// The machine in a folder: the script with its paths there, and a systemctl that records its arguments.
fn install(name: &str, machine: &Path, url: &str, sha256: &str) -> Output {
    for folder in ["etc", "bin", "fake", "bird"] {
        fs::create_dir_all(machine.join(folder)).unwrap();
    }
    let files = files(name);
    let here = |text: &str| {
        text.replace("/etc/sallyport/", &format!("{}/etc/", machine.display()))
            .replace("/usr/local/bin/", &format!("{}/bin/", machine.display()))
            .replace("/etc/bird/", &format!("{}/bird/", machine.display()))
    };
    if !machine.join("etc/edge.env").exists() {
        fs::write(machine.join("etc/edge.env"), &files["/etc/sallyport/edge.env"].1).unwrap();
    }
    fs::write(machine.join("etc/install.env"), format!("SALLYPORT_URL={url}\nSALLYPORT_SHA256={sha256}\n")).unwrap();
    let executable = |path: &Path, text: &str| {
        fs::write(path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    };
    executable(&machine.join("install"), &here(&files["/usr/local/sbin/sallyport-install"].1));
    executable(&machine.join("fake/systemctl"), &format!("#!/bin/sh\necho \"$@\" >>{}/told\n", machine.display()));
    // Not every machine has the group.
    executable(&machine.join("fake/chgrp"), "#!/bin/sh\ntest \"$1\" = bird\n");
    let path = format!("{}/fake:{}", machine.display(), std::env::var("PATH").unwrap());
    Command::new(machine.join("install")).env("PATH", path).env("TMPDIR", machine).output().unwrap()
}

#[test]
fn the_program_is_installed_once_and_only_when_it_is_the_one_that_is_meant() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("sallyport");
    fs::write(&program, "the program").unwrap();
    let url = format!("file://{}", program.display());
    let sha256 = Command::new("sha256sum").arg(&program).output().unwrap();
    let sha256 = text(&sha256.stdout)[..64].to_owned();

    let bird = "daemon-reload\nenable bird.service\nrestart bird.service\nenable --now sallyport-edge.service\n";
    for (name, told) in BOTH.into_iter().zip(["daemon-reload\nenable --now sallyport-edge.service\n", bird]) {
        fs::write(&program, "the program").unwrap();
        let machine = dir.path().join(name);
        let output = install(name, &machine, &url, &"0".repeat(64));
        let printed = text(&output.stderr);
        assert!(
            output.status.code() == Some(1) && printed.contains("is not the file with the SHA-256 000"),
            "{printed}"
        );
        assert!(!machine.join("bin/sallyport").exists() && !machine.join("told").exists());

        let output = install(name, &machine, &url, &sha256);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let installed = machine.join("bin/sallyport");
        assert_eq!(fs::read_to_string(&installed).unwrap(), "the program");
        assert_eq!(fs::metadata(&installed).unwrap().permissions().mode() & 0o777, 0o755);
        assert_eq!(fs::read_to_string(machine.join("told")).unwrap(), told);
        let folder = machine.join("bird/sallyport");
        assert_eq!(folder.is_dir(), told == bird, "{name}");
        if folder.is_dir() {
            // New files in it belong to the group.
            assert_eq!(fs::metadata(folder).unwrap().permissions().mode() & 0o7777, 0o2770);
        }
        let env = fs::read_to_string(machine.join("etc/edge.env")).unwrap();
        assert!(!env.contains("SALLYPORT_JOIN=") && env.contains("SALLYPORT_REGION=eu"), "{env}");

        fs::remove_file(&program).unwrap();
        assert!(install(name, &machine, &url, &sha256).status.success(), "what is installed is not fetched again");
        let left: Vec<_> = fs::read_dir(&machine).unwrap().flatten().map(|entry| entry.file_name()).collect();
        assert!(!left.iter().any(|name| name.to_string_lossy().starts_with("tmp.")), "{left:?}");
    }
}
