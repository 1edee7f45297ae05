//! Two people and one organisation, by the real program.

use crate::harness::{Home, Up, text};

/// A person on another machine, with an account at this `up`.
struct Other<'a> {
    home: Home,
    up: &'a Up,
}

impl Other<'_> {
    fn run(&self, args: &[&str]) -> std::process::Output {
        let api = format!("https://api.localhost:{}", self.up.port);
        let mut command = self.home.command(args);
        let output = command.env("SALLYPORT_API", api).env("SALLYPORT_CA", &self.up.ca).output().unwrap();
        eprintln!("bob$ sallyport {}\n{}{}", args.join(" "), text(&output.stdout), text(&output.stderr));
        output
    }

    fn does(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }
}

#[test]
fn a_member_is_invited_acts_for_the_organisation_and_is_removed() {
    let home = Home::new();
    let up = home.up(&["--sign-up", "open"]);
    home.account();
    let (socket, name) = home.socket(&[]);
    let named = home.json(&["organisation", "rename", "Example Ltd"]);
    assert_eq!((named["name"].as_str(), named["role"].as_str()), (Some("Example Ltd"), Some("owner")));
    let bob = Other { home: Home::new(), up: &up };
    bob.does(&["account", "create", "--name", "Bob", "--email", "bob@example.com"]);
    bob.does(&["login", "--email", "bob@example.com"]);
    let not_his = bob.run(&["--organisation", "Example Ltd", "socket", "ls"]);
    assert_eq!(not_his.status.code(), Some(4));
    assert!(text(&not_his.stderr).contains("organisation ls"), "{}", text(&not_his.stderr));

    assert_eq!(home.run(&["member", "add", "bob@example.com", "--role", "boss"]).status.code(), Some(2));
    let invited = home.json(&["member", "add", "bob@example.com", "--role", "viewer"]);
    assert!(home.run(&["invitation", "ls", "--sent"]).status.success());
    assert!(bob.does(&["invitation", "ls"]).contains("Example Ltd"));
    assert_eq!(bob.run(&["invitation", "accept", "spi_wrong"]).status.code(), Some(4));
    let joined = bob.does(&["invitation", "accept", invited["code"].as_str().unwrap()]);
    assert!(joined.contains("Example Ltd") && joined.contains("viewer"), "{joined}");

    // Once, and from then on; his own account stays his.
    assert!(bob.does(&["--organisation", "Example Ltd", "socket", "ls"]).contains(&name));
    assert!(!bob.does(&["socket", "ls"]).contains(&name));
    bob.does(&["organisation", "use", "Example Ltd"]);
    assert!(bob.does(&["socket", "ls"]).contains(&name));
    assert!(bob.does(&["organisation", "show"]).contains("viewer"));
    assert!(bob.does(&["account", "show"]).contains("bob@example.com"));
    let refused = bob.run(&["socket", "delete", &socket]);
    assert_eq!(refused.status.code(), Some(3));
    assert!(text(&refused.stderr).contains("takes the role member"), "{}", text(&refused.stderr));

    let edited = home.json(&["member", "edit", "bob@example.com", "--role", "member"]);
    assert_eq!(edited["role"], "member");
    bob.does(&["socket", "create", "--name", "bobs", "--type", "http"]);
    assert!(text(&home.run(&["socket", "ls"]).stdout).contains("bobs"));
    assert!(bob.does(&["member", "ls"]).contains("owner (founder)"));

    assert!(home.run(&["member", "rm", "bob@example.com"]).status.success());
    assert_eq!(bob.run(&["socket", "ls"]).status.code(), Some(4));
    bob.does(&["organisation", "use", "--own"]);
    assert!(!bob.does(&["socket", "ls"]).contains("bobs"));
    assert_eq!(bob.run(&["organisation", "leave"]).status.code(), Some(5));
    assert_eq!(bob.run(&["organisation", "use", "Example Ltd"]).status.code(), Some(4));
}
