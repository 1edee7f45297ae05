//! Names that people can use: `--name`, `connect --name` again, help, near words, completion.

use crate::harness::{Home, Origin, Program, text, wait_until};

/// A `connect` with this name, and the host that it prints.
fn connect(home: &Home, origin: &Origin, name: &str, more: &[&str]) -> (Program, String) {
    let port = origin.address.port().to_string();
    let args = [&["connect", "--host", "127.0.0.1", "--port", &port, "--name", name][..], more].concat();
    let program = Program::start(&mut home.command(&args));
    let line = program.wait_for("https://");
    let host = line.trim_start_matches("https://").split([':', '/']).next().unwrap().to_owned();
    (program, host)
}

#[test]
fn connect_with_a_name_has_its_public_name_again_and_a_second_one_shares_it() {
    let home = Home::new();
    let up = home.up(&[]);
    home.account();
    let (one, two) = (Origin::start("one"), Origin::start("two"));
    let (first, host) = connect(&home, &one, "blog", &["--affinity", "none"]);
    assert!(up.curl(&host, "/", &[]).body.starts_with("one"));
    // One beside it, with another spelling and a setting more.
    let (second, same) = connect(&home, &two, "BLOG", &["--max-connections", "100"]);
    assert_eq!(same, host);
    second.wait_for("has a service already");
    wait_until("both to serve", || {
        let bodies: Vec<_> = (0..8).map(|_| up.curl(&host, "/", &[]).body).collect();
        (bodies.iter().any(|body| body.starts_with("one")) && bodies.iter().any(|body| body.starts_with("two")))
            .then_some(())
    });
    let tunnels = home.json(&["tunnel", "ls", "--name", "blog"]);
    let machine = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    assert_eq!(tunnels.as_array().unwrap().len(), 2);
    assert!(tunnels.as_array().unwrap().iter().all(|tunnel| tunnel["host"] == machine.trim()), "{tunnels}");
    // The first that ends takes nothing from the other.
    first.signal("INT");
    assert!(first.ended().success());
    first.wait_for("the socket blog stays");
    assert!(up.curl(&host, "/", &[]).body.starts_with("two"));
    second.signal("KILL");
    second.ended();

    let socket = home.json(&["socket", "show", "--name", "blog"]);
    assert_eq!(socket["limits"]["max_connections"], 100, "{socket}");
    let (third, again) = connect(&home, &one, "blog", &[]);
    assert_eq!(again, host);
    wait_until("it to serve", || up.curl(&host, "/", &[]).body.starts_with("one").then_some(()));
    assert_eq!(
        home.json(&["socket", "show", "blog"])["limits"]["max_connections"],
        100,
        "settings without an option stay"
    );
    third.stop();
    let port = one.address.port().to_string();
    let refused = home.run(&["connect", &port, "--name", "blog", "--type", "tcp"]);
    assert_eq!(refused.status.code(), Some(5));
    assert!(text(&refused.stderr).contains("of the type http, and not tcp"), "{}", text(&refused.stderr));

    // A request without a chosen name is never refused.
    let plain = || {
        let program = Program::start(&mut home.command(&["connect", "--host", "127.0.0.1", "--port", &port]));
        program.wait_for("https://");
        program
    };
    let _both = (plain(), plain());
    let names: Vec<_> = home
        .json(&["socket", "ls"])
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["name"].as_str().unwrap().to_owned())
        .collect();
    let address = format!("127.0.0.1:{port}");
    assert_eq!(names, ["blog".to_owned(), address.clone(), format!("{address} (2)")]);
}

#[test]
fn a_name_stands_wherever_an_id_does() {
    let home = Home::new();
    let up = home.up(&[]);
    home.account();
    let name = "my test service";
    let made = home.json(&["socket", "create", "--name", name]);
    let refused = home.run(&["socket", "create", "--name", "My Test  Service"]);
    assert_eq!(refused.status.code(), Some(5));
    assert!(text(&refused.stderr).contains("names are unique in an organisation"), "{}", text(&refused.stderr));
    let tunnel = home.json(&["tunnel", "create", name, "--name", "web 1"]);
    let origin = Origin::start("origin");
    let port = origin.address.port().to_string();
    for by in
        [&[name][..], &["--name", name], &["--socket-id", name], &["--socket", &made["id"].as_str().unwrap()[..8]]]
    {
        assert_eq!(home.json(&[&["socket", "show"][..], by].concat())["id"], made["id"], "{by:?}");
        assert_eq!(home.json(&[&["tunnel", "ls"][..], by].concat())[0]["id"], tunnel["id"], "{by:?}");
    }
    for delete in [&["web 2"][..], &["--name", "web 2"], &[name, "--tunnel-id", "web 2"], &["--tunnel", "web 2"]] {
        home.json(&["tunnel", "create", name, "--name", "web 2"]);
        assert!(home.run(&[&["tunnel", "delete"][..], delete].concat()).status.success(), "{delete:?}");
        let missing = home.run(&[&["tunnel", "delete"][..], delete].concat());
        assert_eq!(missing.status.code(), Some(4), "{delete:?}");
        assert!(text(&missing.stderr).contains("there is no such tunnel: web 2"), "{}", text(&missing.stderr));
    }
    let args = ["tunnel", "connect", "--name", name, "--tunnel-id", "WEB 1", "--host", "127.0.0.1", "--port", &port];
    let connector = Program::start(&mut home.command(&args));
    connector.wait_for("https://");
    let host = made["dns_name"].as_str().unwrap();
    assert_eq!(up.curl(host, "/", &[]).status, 200);
    let listed = text(&home.run(&["tunnel", "ls"]).stdout);
    let machine = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    assert!(listed.contains("web 1") && listed.contains(machine.trim()) && listed.contains("HOST"), "{listed}");
    assert!(home.run(&["audit", "--socket", name]).status.success());
    assert!(text(&home.run(&["audit", "--socket", name]).stdout).contains("socket.create"));
    assert_eq!(home.run(&["socket", "stats", "--name", name]).status.code(), Some(0));
    let renamed = home.run(&["tunnel", "edit", "web 1", "--name", "till"]);
    assert!(renamed.status.success() && text(&renamed.stdout).contains("till"));

    let edited = home.run(&["socket", "edit", name, "--name", "shop", "--affinity", "cookie"]);
    let printed = text(&edited.stdout);
    assert!(printed.contains("my test service -> shop") && printed.contains("- -> cookie"), "{printed}");
    assert!(!printed.contains("ssh-ed25519") && !printed.contains("created"), "only what has changed: {printed}");
    assert!(home.run(&["socket", "delete", "--name", "shop"]).status.success());
    assert_eq!(home.run(&["socket", "show", "shop"]).status.code(), Some(4));
}

#[test]
fn help_knows_commands_topics_and_near_words() {
    let home = Home::new();
    let printed = |args: &[&str]| text(&home.run(args).stdout);
    let help = printed(&["help", "socket", "create"]);
    assert_eq!(help.trim_end(), printed(&["socket", "create", "--help"]).trim_end());
    assert!(printed(&["help"]).contains("Topics of `sallyport help TOPIC`: domains, names"));
    for topic in ["names", "policies", "scripts", "transports"] {
        let text = printed(&["help", topic]);
        assert!(text.to_lowercase().starts_with(&format!("{topic}:")), "{topic}: {text}");
    }
    let run = printed(&["help", "run"]);
    assert!(run.contains("Usage: sallyport run") && run.contains("[[service]]"), "{run}");
    for (words, near) in [
        (&["help", "transport"][..], "did you mean transports?"),
        (&["help", "sockt"], "did you mean socket?"),
        (&["help", "socket", "creat"], "did you mean create?"),
        (&["sockt", "ls"], "'socket'"),
        (&["socket", "ls", "--outpt", "json"], "'--output'"),
        (&["sockt", "-o", "json"], "did you mean socket?"),
    ] {
        let output = home.run(words);
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        assert!(text(&output.stderr).contains(near), "{words:?}: {}", text(&output.stderr));
    }
    let _up = home.up(&[]);
    home.account();
    let bad = home.dir.path().join("rules.json");
    std::fs::write(&bad, "{}").unwrap();
    let output = home.run(&["policy", "test", "-f", bad.to_str().unwrap()]);
    let says = text(&output.stderr);
    assert!(!says.contains("docs/") && says.contains("sallyport help policies"), "{says}");
}

#[test]
fn one_flag_is_named_for_each_thing_that_is_wrong() {
    let home = Home::new();
    let _up = home.up(&[]);
    home.account();
    for (option, value, flag) in [
        ("--queue", "5", "--queue:"),
        ("--max-connections", "0", "--max-connections:"),
        ("--requests-per-second", "0", "--requests-per-second:"),
        ("--bytes-per-second", "5", "--bytes-per-second:"),
        ("--deny", "0.0.0.0/0,::/0", "--deny:"),
        ("--deny", "country:CH", "--deny:"),
        ("--allow", "country:CH", "--allow:"),
    ] {
        let output = home.run(&["socket", "create", "--name", "x", option, value]);
        assert_eq!(output.status.code(), Some(5), "{option} {value}");
        let says = text(&output.stderr);
        let first = says.lines().next().unwrap();
        assert!(first.contains(flag), "{option} {value}: {says}");
    }
}

/// What the program offers bash for the last of these words.
pub(crate) fn offered(home: &Home, words: &[&str]) -> Vec<String> {
    let mut command = home.command(&["--"]);
    command.args(words).env("SALLYPORT_COMPLETE", "bash").env("_CLAP_COMPLETE_INDEX", (words.len() - 1).to_string());
    let output = command.env("_CLAP_IFS", "\n").env("_CLAP_COMPLETE_COMP_TYPE", "9").output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output.stderr));
    text(&output.stdout).lines().map(str::to_owned).collect()
}

#[test]
fn completion_offers_existing_names_and_nothing_without_the_api() {
    let home = Home::new();
    let up = home.up(&[]);
    assert_eq!(offered(&home, &["sallyport", "socket", "show", "b"]), [""; 0], "nobody is logged in");
    home.account();
    home.json(&["socket", "create", "--name", "blog"]);
    home.json(&["socket", "create", "--name", "my test service"]);
    home.json(&["tunnel", "create", "blog", "--name", "blog-web"]);
    home.json(&["policy", "create", "staff", "--email-domain", "example.com"]);
    home.json(&["token", "create", "--name", "ci", "--scope", "sockets:read"]);
    for (words, wanted) in [
        (&["socket", "show", "b"][..], "blog"),
        (&["socket", "delete", "--name", "BL"], "blog"),
        (&["socket", "show", "my"], "'my test service'"),
        (&["tunnel", "connect", "--socket-id", "blo"], "blog"),
        (&["connect", "--name", "blo"], "blog"),
        (&["tunnel", "delete", "blog-"], "blog-web"),
        (&["policy", "rm", "st"], "staff"),
        (&["policy", "attach", "staff", "bl"], "blog"),
        (&["member", "rm", "te"], "test@example.com"),
        (&["token", "delete", "c"], "ci"),
        (&["sock"], "socket"),
        (&["socket", "sh"], "show"),
        (&["connect", "--transp"], "--transport"),
    ] {
        let words = [&["sallyport"][..], words].concat();
        let offered = offered(&home, &words);
        assert!(offered.iter().any(|word| word.trim() == wanted), "{words:?}: {offered:?}");
    }
    assert_eq!(offered(&home, &["sallyport", "socket", "show", "nothing-like"]), [""; 0]);

    // A shell takes the script, and puts in what it offers.
    let script = home.dir.path().join("completion.bash");
    std::fs::write(&script, home.run(&["completion", "bash"]).stdout).unwrap();
    let bin = std::path::Path::new(env!("CARGO_BIN_EXE_sallyport")).parent().unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let ask = "source \"$0\"; COMP_WORDS=(sallyport socket show blo); COMP_CWORD=3; COMP_TYPE=9; \
               _clap_complete_sallyport sallyport blo show; printf '%s\\n' \"${COMPREPLY[@]}\"";
    let mut bash = home.program("bash");
    let shown = bash.env("PATH", path).args(["-c", ask, script.to_str().unwrap()]).output().unwrap();
    assert_eq!(text(&shown.stdout).trim(), "blog", "{}", text(&shown.stderr));

    up.program.stop();
    assert_eq!(offered(&home, &["sallyport", "socket", "show", "b"]), [""; 0], "nothing responds");
}
