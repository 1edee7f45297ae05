//! `sallyport run` follows its file without a signal.

use std::{
    io::Write as _,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::Path,
    process::Stdio,
    thread,
};

use serde_json::{Value, json};

use crate::{
    commands::tls_origin,
    harness::{Home, Origin, Program, Up, curl, wait_until},
    run::{events, host, service, write},
};

/// A server with an account.
fn installation() -> (Home, Up) {
    let home = Home::new();
    let up = home.up(&[]);
    home.account();
    (home, up)
}

fn start(home: &Home, path: &Path) -> Program {
    let args = ["run", path.to_str().unwrap(), "-o", "json", "--watch-interval", "100ms"];
    Program::start(&mut home.command(&args))
}

/// Puts a whole file at this path at once.
fn put(path: &Path, content: &str, mode: u32) {
    let draft = path.with_extension("new");
    std::fs::write(&draft, content).unwrap();
    std::fs::set_permissions(&draft, std::fs::Permissions::from_mode(mode)).unwrap();
    std::fs::rename(draft, path).unwrap();
}

fn named(services: &[(&str, &Origin)]) -> String {
    services.iter().map(|(name, origin)| service(&format!("name = \"{name}\""), origin.address)).collect()
}

/// The event of this kind after so many of them.
fn nth(run: &Program, kind: &str, before: usize) -> Value {
    let event = wait_until(&format!("{kind} number {before}"), || events(run, kind, None).into_iter().nth(before));
    assert_eq!(event["cause"], "file", "{event}");
    event
}

/// Waits until the services are those of a changed file; what was added, changed and removed.
fn reloaded(run: &Program, before: usize) -> [Value; 3] {
    let event = nth(run, "reloaded", before);
    ["added", "changed", "removed"].map(|kind| event[kind].clone())
}

fn says(up: &Up, host: &str, name: &str) {
    assert!(up.curl(host, "/", &[]).body.starts_with(name), "{host} is not served by {name}");
}

#[test]
fn an_edit_is_taken_without_a_signal_and_disturbs_nothing_else() {
    let (home, up) = installation();
    let (still, new) = (Origin::start("still"), Origin::start("new"));
    let path = write(&home, &named(&[("still", &still)]));
    let run = start(&home, &path);
    let (url, ca) = (up.url(&host(&run, "still", 1), "/trickle/40"), up.ca.clone());
    let download = thread::spawn(move || curl(&ca, &url, &[]));
    wait_until("the request to reach the origin", || (still.count() == 1).then_some(()));

    // In place, as most editors and `tee` write.
    std::fs::write(&path, named(&[("still", &still), ("new", &new)])).unwrap();
    assert_eq!(reloaded(&run, 0), [json!(["new"]), json!([]), json!([])]);
    says(&up, &host(&run, "new", 1), "new");
    let response = download.join().unwrap();
    assert_eq!((response.status, response.body.len()), (200, 200), "{}", response.head);
    assert_eq!(events(&run, "attached", Some("still")).len(), 1);
    assert_eq!(events(&run, "disconnected", None), Vec::<Value>::new());

    // Another file of the same name, as `mv` and other editors make it.
    write(&home, &named(&[("new", &still)]));
    assert_eq!(reloaded(&run, 1), [json!([]), json!(["new"]), json!(["still"])]);
    host(&run, "new", 2);
    says(&up, &host(&run, "new", 2), "still");
    assert_eq!(events(&run, "reloaded", None).len(), 2, "each change is taken once");
    assert_eq!(run.stop().code(), Some(0), "{}", run.output());
}

#[test]
fn a_broken_edit_is_reported_once_and_the_mended_one_is_taken() {
    let (home, up) = installation();
    let (shop, more) = (Origin::start("shop"), Origin::start("more"));
    let path = write(&home, &named(&[("shop", &shop)]));
    let run = start(&home, &path);
    let name = host(&run, "shop", 1);
    for (number, (bad, expected)) in [
        ("[[service]]\nport = ".to_owned(), "services.toml:2: "),
        (named(&[("shop", &shop)]) + "prt = 1", "unexpected argument '--prt'"),
        (named(&[("shop", &shop)]) + "[[service]]\nsocket-id = \"calm-bay-1000\"\nport = 1", "no such socket"),
        (String::new(), "there is no service"),
    ]
    .into_iter()
    .enumerate()
    {
        put(&path, &bad, 0o600);
        let refused = nth(&run, "not-reloaded", number);
        let message = refused["error"]["message"].as_str().unwrap();
        assert!(message.contains(expected), "{bad}: {message}");
        says(&up, &name, "shop");
    }
    put(&path, &named(&[("shop", &shop), ("more", &more)]), 0o600);
    assert_eq!(reloaded(&run, 0), [json!(["more"]), json!([]), json!([])]);
    says(&up, &host(&run, "more", 1), "more");

    // Readable by every user, the password is refused. With the right mode, the same file is taken.
    let keys = "name = \"shop\"\nprotected = true\nusername = \"ann\"\npassword = \"a long enough one\"";
    put(&path, &service(keys, shop.address), 0o644);
    let refused = nth(&run, "not-reloaded", 4);
    assert!(refused["error"]["message"].as_str().unwrap().contains("every user of this machine can read"), "{refused}");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(reloaded(&run, 1)[2], json!(["more"]));
    assert_eq!(events(&run, "not-reloaded", None).len(), 5, "each is reported once");
    assert_eq!(run.stop().code(), Some(0), "{}", run.output());
}

#[test]
fn links_of_a_mounted_folder_and_a_removed_file_are_followed() {
    let (home, up) = installation();
    let (shop, more) = (Origin::start("shop"), Origin::start("more"));
    // As Kubernetes mounts a ConfigMap: services.toml -> ..data/services.toml, and ..data -> a folder for each version.
    let mount = home.dir.path().join("mount");
    let version = |number: &str, content: &str| {
        let folder = mount.join(number);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("services.toml"), content).unwrap();
        symlink(number, mount.join("..data_tmp")).unwrap();
        std::fs::rename(mount.join("..data_tmp"), mount.join("..data")).unwrap();
    };
    version("..1", &named(&[("shop", &shop)]));
    let path = mount.join("services.toml");
    symlink("..data/services.toml", &path).unwrap();
    let run = start(&home, &path);
    let name = host(&run, "shop", 1);
    version("..2", &named(&[("shop", &shop), ("more", &more)]));
    std::fs::remove_dir_all(mount.join("..1")).unwrap();
    assert_eq!(reloaded(&run, 0), [json!(["more"]), json!([]), json!([])]);
    says(&up, &host(&run, "more", 1), "more");

    std::fs::remove_file(&path).unwrap();
    let gone = nth(&run, "not-reloaded", 0);
    assert!(gone["error"]["message"].as_str().unwrap().ends_with("services.toml is not there any more"), "{gone}");
    says(&up, &name, "shop");
    put(&path, &named(&[("more", &more)]), 0o600);
    assert_eq!(reloaded(&run, 1), [json!([]), json!([]), json!(["shop"])]);
    assert_eq!(events(&run, "not-reloaded", None).len(), 1, "that it is gone is said once");
    assert_eq!(run.stop().code(), Some(0), "{}", run.output());
}

#[test]
fn a_renewed_authority_of_a_service_is_taken_with_its_file_unchanged() {
    let (home, up) = installation();
    let (_server, address, right, _) = tls_origin(&home, "right", false);
    let (_other_server, _, wrong, _) = tls_origin(&home, "wrong", false);
    let authority = home.dir.path().join("authority.pem");
    std::fs::copy(&wrong, &authority).unwrap();
    let (port, file) = (address.port(), authority.display());
    let keys = format!("name = \"shop\"\naddress = \"https://localhost:{port}\"\norigin-ca = \"{file}\"\n");
    let path = write(&home, &format!("[[service]]\n{keys}"));
    let run = start(&home, &path);
    let name = host(&run, "shop", 1);
    assert_eq!(up.curl(&name, "/", &[]).status, 502);
    std::fs::write(&authority, "half of a certifi").unwrap();
    let refused = nth(&run, "not-reloaded", 0);
    assert!(refused["error"]["message"].as_str().unwrap().contains("holds no usable certificate"), "{refused}");
    std::fs::copy(&right, &authority).unwrap();
    assert_eq!(reloaded(&run, 0), [json!([]), json!(["shop"]), json!([])]);
    wait_until("the service to be trusted", || (up.curl(&name, "/", &[]).status == 200).then_some(()));
    assert_eq!(run.stop().code(), Some(0), "{}", run.output());
}

#[test]
fn a_file_that_differs_at_every_look_is_reported_once_and_disturbs_nothing() {
    let (home, up) = installation();
    let (_server, address, right, _) = tls_origin(&home, "right", false);
    let (_other_server, _, wrong, _) = tls_origin(&home, "wrong", false);
    let authority = home.dir.path().join("authority.pem");
    let becomes = |target: &Path| {
        let draft = authority.with_extension("new");
        symlink(target, &draft).unwrap();
        std::fs::rename(draft, &authority).unwrap();
    };
    becomes(Path::new(&right));
    let (port, file) = (address.port(), authority.display());
    let keys = format!("name = \"shop\"\naddress = \"https://localhost:{port}\"\norigin-ca = \"{file}\"\n");
    let path = write(&home, &format!("[[service]]\n{keys}"));
    let run = start(&home, &path);
    let name = host(&run, "shop", 1);
    // No two looks find the same there, however slow the machine is.
    becomes(Path::new("/proc/uptime"));
    let reported = nth(&run, "not-reloaded", 0);
    assert!(reported["error"]["message"].as_str().unwrap().contains("changes again and again"), "{reported}");
    assert_eq!(events(&run, "reloaded", None), Vec::<Value>::new());
    wait_until("the service to be served", || (up.curl(&name, "/", &[]).status == 200).then_some(()));
    becomes(Path::new(&wrong));
    assert_eq!(reloaded(&run, 0), [json!([]), json!(["shop"]), json!([])]);
    assert_eq!(events(&run, "not-reloaded", None).len(), 1, "it is reported once");
    assert_eq!(run.stop().code(), Some(0), "{}", run.output());
}

#[test]
fn an_edit_while_the_api_is_away_is_taken_when_it_is_back() {
    let (home, up) = installation();
    let (shop, more) = (Origin::start("shop"), Origin::start("more"));
    let path = write(&home, &named(&[("shop", &shop)]));
    let run = start(&home, &path);
    let name = host(&run, "shop", 1);
    let listen = format!("127.0.0.1:{}", up.port);
    up.program.signal("KILL");
    up.program.ended();
    put(&path, &named(&[("shop", &shop), ("more", &more)]), 0o600);
    let refused = nth(&run, "not-reloaded", 0);
    assert_eq!(refused["error"]["kind"], "unreachable", "{refused}");
    let data = home.data();
    let args = ["up", "--listen", &listen, "--listen-http", "none", "--data", data.to_str().unwrap()];
    let again = Program::start(&mut home.command(&args));
    again.wait_for("ready");
    assert_eq!(reloaded(&run, 0), [json!(["more"]), json!([]), json!([])]);
    says(&up, &host(&run, "more", 1), "more");
    host(&run, "shop", 2);
    says(&up, &name, "shop");
    assert_eq!(run.stop().code(), Some(0), "{}", run.output());
}

#[test]
fn services_from_a_pipe_are_read_once_and_a_signal_says_that_there_is_no_file() {
    let (home, up) = installation();
    let shop = Origin::start("shop");
    let mut command = home.command(&["run", "/dev/stdin", "-o", "json", "--watch-interval", "10ms"]);
    let (reader, mut writer) = std::io::pipe().unwrap();
    let run = Program::start(command.stdin(Stdio::from(reader)));
    drop(command);
    writer.write_all(named(&[("shop", &shop)]).as_bytes()).unwrap();
    drop(writer);
    let name = host(&run, "shop", 1);
    run.signal("HUP");
    let refused = wait_until("the answer", || events(&run, "not-reloaded", None).pop());
    assert_eq!(refused["cause"], "signal");
    assert!(refused["error"]["message"].as_str().unwrap().contains("no regular file"), "{refused}");
    says(&up, &name, "shop");
    assert_eq!(events(&run, "not-reloaded", None).len(), 1);
    let both = home.run(&["run", "/dev/stdin", "--no-watch", "--watch-interval", "1s"]);
    assert_eq!(both.status.code(), Some(2));
}
