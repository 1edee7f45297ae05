//! The user data that makes a fresh machine an edge.

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

/// The written files by path: mode and content.
fn files() -> BTreeMap<String, (u32, String)> {
    let contents = fs::read_to_string(format!("{ROOT}/integrations/cloud-init/edge.yaml")).unwrap();
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
    let files = files();
    let unit = fs::read_to_string(format!("{ROOT}/integrations/systemd/sallyport-edge.service")).unwrap();
    let settings = |text: &str| text[text.find("[Unit]").unwrap()..].trim().to_owned();
    assert_eq!(settings(&files["/etc/systemd/system/sallyport-edge.service"].1), settings(&unit));
    for (path, (mode, content)) in &files {
        assert!(!content.contains("SALLYPORT_JOIN=") || *mode == 0o600 || *mode == 0o755, "{path} {mode:o}");
    }
    assert_eq!(files["/etc/sallyport/edge.env"].0, 0o600);
}

/// The machine in a folder: the script with its paths there, and a systemctl that records its arguments.
fn install(machine: &Path, url: &str, sha256: &str) -> Output {
    for folder in ["etc", "bin", "fake"] {
        fs::create_dir_all(machine.join(folder)).unwrap();
    }
    let files = files();
    let here = |text: &str| {
        text.replace("/etc/sallyport/", &format!("{}/etc/", machine.display()))
            .replace("/usr/local/bin/", &format!("{}/bin/", machine.display()))
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

    let machine = dir.path().join("machine");
    let output = install(&machine, &url, &"0".repeat(64));
    let printed = text(&output.stderr);
    assert!(output.status.code() == Some(1) && printed.contains("is not the file with the SHA-256 000"), "{printed}");
    assert!(!machine.join("bin/sallyport").exists() && !machine.join("told").exists());

    let output = install(&machine, &url, &sha256);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let installed = machine.join("bin/sallyport");
    assert_eq!(fs::read_to_string(&installed).unwrap(), "the program");
    assert_eq!(fs::metadata(&installed).unwrap().permissions().mode() & 0o777, 0o755);
    let calls = fs::read_to_string(machine.join("told")).unwrap();
    assert_eq!(calls, "daemon-reload\nenable --now sallyport-edge.service\n");
    let env = fs::read_to_string(machine.join("etc/edge.env")).unwrap();
    assert!(!env.contains("SALLYPORT_JOIN=") && env.contains("SALLYPORT_REGION=eu"), "{env}");

    fs::remove_file(&program).unwrap();
    assert!(install(&machine, &url, &sha256).status.success(), "what is installed is not fetched again");
    let left: Vec<_> = fs::read_dir(&machine).unwrap().flatten().map(|entry| entry.file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().starts_with("tmp.")), "{left:?}");
}
