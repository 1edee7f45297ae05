//! Policies from the command line, as people and scripts write them.

use crate::harness::{Home, Program, text};

fn refused(home: &Home, args: &[&str]) -> (Option<i32>, String) {
    let output = home.command(args).output().unwrap();
    assert!(!output.status.success(), "{args:?}: {}", text(&output.stdout));
    (output.status.code(), text(&output.stderr))
}

#[test]
fn a_policy_is_written_attached_tested_and_removed() {
    let home = Home::new();
    let _up = home.up(&[]);
    home.account();
    let made = home.json(&["policy", "create", "staff", "--email-domain", "example.com", "--rule", "all staff"]);
    assert_eq!(made["document"]["allow"][0]["who"]["email_domains"][0], "example.com");
    let args = ["policy", "edit", "staff", "--deny", "--path", "/admin", "--anyone"];
    assert_eq!(home.json(&args)["document"]["deny"][0]["what"]["paths"][0], "/admin");
    let shown = text(&home.run(&["policy", "show", "staff"]).stdout);
    assert!(shown.contains("attached to") && shown.contains("\"/admin\""), "{shown}");
    let rules = home.run(&["policy", "show", "staff", "--rules"]).stdout;
    let file = home.data().with_extension("json");
    std::fs::write(&file, &rules).unwrap();
    let file = file.to_str().unwrap();
    assert_eq!(
        home.json(&["policy", "edit", "staff", "-f", file])["document"],
        home.json(&["policy", "show", "staff", "--rules"])
    );

    let who = ["--email", "ann@example.com"];
    let asked = home.json(&[&["policy", "test", "staff"], &who[..]].concat());
    assert_eq!((&asked["allowed"], &asked["rule"]), (&true.into(), &"allow rule 1 (\"all staff\")".into()));
    let explained = text(&home.run(&[&["policy", "test", "staff", "--path", "/%61dmin"], &who[..]].concat()).stdout);
    assert!(explained.contains("denied") && explained.contains("policy \"staff\", deny rule 1"), "{explained}");
    let (code, says) = refused(&home, &[&["policy", "test", "-f", file, "--expect", "deny"], &who[..]].concat());
    assert!(code == Some(1) && says.contains("it is allowed: policy \"tested\""), "{says}");
    home.json(&["policy", "test", "staff", "--email", "eve@evil.test", "--expect", "deny"]);

    let (code, says) = refused(&home, &["socket", "create", "--name", "x", "--cloudauth"]);
    assert!(code == Some(5) && says.contains("--cloudauth: every client would be denied"), "{says}");
    let (code, says) = refused(&home, &["socket", "create", "--name", "x", "--allowed-email-domains", "x.org"]);
    assert!(code == Some(2) && says.contains("add --cloudauth"), "{says}");
    let made = home.json(&["socket", "create", "--name", "x", "--cloudauth", "--policy", "staff"]);
    assert_eq!((&made["policies"][0], made["identity"].is_object()), (&"staff".into(), true));
    let socket = made["id"].as_str().unwrap();
    let edit = ["socket", "edit", socket, "--allowed_email_addresses", "Bob@Other.org", "--session-minutes", "30"];
    let edited = home.json(&edit);
    assert_eq!(edited["identity"]["email_addresses"][0], "bob@other.org");
    let shown = text(&home.run(&["socket", "show", socket]).stdout);
    assert!(shown.contains("again after 30 minutes") && shown.contains("bob@other.org"), "{shown}");
    let bob = home.json(&["policy", "test", "--socket", socket, "--email", "bob@other.org"]);
    assert_eq!(bob["by"], "the socket's allowed e-mail addresses");

    let (code, says) = refused(&home, &["policy", "rm", "staff"]);
    assert!(code == Some(5) && says.contains("detach it first"), "{says}");
    let plain = home.json(&["socket", "create", "--name", "plain"]);
    let plain = plain["id"].as_str().unwrap();
    let (code, says) = refused(&home, &["policy", "attach", "staff", plain]);
    assert!(code == Some(5) && says.contains("would deny every client") && says.contains("--force"), "{says}");
    home.json(&["policy", "attach", "staff", "--all", "--force"]);
    let (_, says) = refused(&home, &["policy", "detach", "staff", "--all"]);
    assert!(says.contains("to every client") && says.contains("--force"), "{says}");
    home.json(&["policy", "detach", "staff", "--all", "--force"]);
    home.json(&["policy", "detach", "staff", socket]);
    home.run(&["policy", "rm", "staff"]);
    let (code, says) = refused(&home, &["policy", "show", "staff"]);
    assert!(code == Some(4) && says.contains("there is no such policy: staff"), "{says}");
}

#[test]
fn a_login_without_a_provider_causes_a_note() {
    let home = Home::new();
    let _up = home.up(&[]);
    home.account();
    let note = "nobody can log in yet: the organisation has no identity provider; `sallyport provider add` adds one";
    let asks = ["--name", "x", "--cloudauth", "--allowed-email-domains", "example.com"];
    let create = [&["socket", "create"], &asks[..]].concat();
    let made = home.run(&create);
    assert!(made.status.success() && text(&made.stderr).lines().any(|line| line == note), "{}", text(&made.stderr));

    let connect = Program::start(&mut home.command(&[&["connect", "--port", "9"], &asks[..]].concat()));
    connect.wait_for(note);
    connect.stop();
    let file = home.data().with_file_name("services.toml");
    let service = "[[service]]\nname = \"app\"\nport = 9\ncloudauth = true\nallowed-email-domains = \"example.com\"\n";
    std::fs::write(&file, service).unwrap();
    let run = Program::start(&mut home.command(&["run", file.to_str().unwrap()]));
    run.wait_for(&format!("app: {note}"));
    run.stop();

    home.json(&["provider", "add", "local"]);
    home.run(&["socket", "delete", "x"]);
    let made = home.run(&create);
    assert!(made.status.success() && !text(&made.stderr).contains("identity provider"), "{}", text(&made.stderr));
}
