//! How accounts are made: with the setup token, by invitation, or not at all.

use std::{fs, os::unix::fs::PermissionsExt as _, path::PathBuf};

use http::StatusCode;
use sallyport_api::{Account, CreatedInvitation, Member, Organisation, Page};
use sallyport_control::{SETUP_TOKEN_FILE, SignUp};
use sallyport_store::Store;
use serde_json::{Value, json};

use crate::{
    fake_hook::{FakeHook, SECRET},
    harness::{Api, HttpResponse, PASSWORD, TestClock},
    postgres,
};

impl Api {
    fn setup_file(&self) -> PathBuf {
        self.dir.path().join(SETUP_TOKEN_FILE)
    }

    fn setup_token(&self) -> String {
        fs::read_to_string(self.setup_file()).unwrap().trim().to_owned()
    }

    async fn comes(&self, email: &str, more: Value) -> HttpResponse {
        let mut body = json!({"name": "Ann", "email": email, "password": PASSWORD});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.post("/v1/accounts", None, body).await
    }

    async fn invited(&self, token: &str, email: &str) -> CreatedInvitation {
        let body = json!({"email": email, "role": "member"});
        self.post("/v1/invitations", Some(token), body).await.read(StatusCode::CREATED)
    }
}

#[tokio::test]
async fn the_first_account_needs_the_setup_token() {
    for sign_up in [SignUp::Closed, SignUp::Open] {
        let api = Api::start_with_setup(sign_up).await;
        let token = api.setup_token();
        assert!(token.starts_with("spu_") && token.len() == 47, "{token}");
        assert_eq!(fs::metadata(api.setup_file()).unwrap().permissions().mode() & 0o777, 0o600);
        for more in [json!({}), json!({"setup_token": "spu_nonsense"}), json!({"invitation": "spi_nonsense"})] {
            api.comes("eve@example.com", more).await.assert_problem(StatusCode::FORBIDDEN, "setup-token-needed");
        }
        // Nor by the original clients' path.
        let user = json!({"name": "Eve", "email": "eve@example.com", "password": PASSWORD});
        let original = api.post("/user", None, user).await;
        assert!(original.status == StatusCode::FORBIDDEN && original.text.contains("setup token"), "{original:?}");
        assert_eq!(api.store.count_accounts().await.unwrap(), 0);

        let made = api.comes("ann@example.com", json!({ "setup_token": token })).await;
        assert_eq!(made.status, StatusCode::CREATED, "{}", made.text);
        assert!(!api.setup_file().exists(), "the file is used once and then removed");
        let ann = api.login("ann@example.com").await.access_token.expose().to_owned();
        assert_eq!(api.actions(&ann).await, ["installation.setup"]);
        let next = api.comes("bob@example.com", json!({ "setup_token": token })).await;
        match sign_up {
            SignUp::Open => assert_eq!(next.status, StatusCode::CREATED, "{}", next.text),
            SignUp::Closed => drop(next.assert_problem(StatusCode::FORBIDDEN, "sign-up-closed")),
        }
    }
}

#[tokio::test]
async fn the_setup_token_stays_over_restarts_until_it_is_used_and_is_replaced_with_the_last_account() {
    let api = Api::start_with_setup(SignUp::Closed).await;
    let token = api.setup_token();
    let api = api.restart_with_setup().await;
    assert_eq!(api.setup_token(), token);
    fs::remove_file(api.setup_file()).unwrap();
    let api = api.restart_with_setup().await;
    assert_eq!(api.setup_token(), token, "the file can be had again");
    assert_eq!(api.comes("ann@example.com", json!({ "setup_token": token })).await.status, StatusCode::CREATED);
    fs::write(api.setup_file(), "left over").unwrap();
    let api = api.restart_with_setup().await;
    assert!(!api.setup_file().exists(), "what is worth nothing is removed");
    let ann = api.login("ann@example.com").await.access_token.expose().to_owned();
    assert_eq!(api.send("DELETE", "/v1/account", Some(&ann), None).await.status, StatusCode::NO_CONTENT);
    let other = api.setup_token();
    assert_ne!(other, token);
    api.comes("eve@example.com", json!({ "setup_token": token }))
        .await
        .assert_problem(StatusCode::FORBIDDEN, "setup-token-needed");
    assert_eq!(api.comes("ann@example.com", json!({ "setup_token": other })).await.status, StatusCode::CREATED);
}

#[tokio::test]
async fn several_controls_agree_on_one_setup_token() {
    let Some(server) = postgres::server() else { return };
    let base = server.base();
    let mut psql = std::process::Command::new("psql");
    psql.args([&format!("{base}/postgres"), "-q", "-c", "CREATE DATABASE setup TEMPLATE template0"]);
    assert!(psql.status().unwrap().success());
    let address = format!("{base}/setup").parse().unwrap();
    let clock = TestClock::new();
    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let keys = first.path().to_owned();
    let at = async |dir: tempfile::TempDir, id: u8| {
        let (store, file) = (Store::open_postgres(&address).await.unwrap(), dir.path().join(SETUP_TOKEN_FILE));
        Api::start_on(store, dir, &keys, clock.clone(), SignUp::Closed, move |config| {
            (config.id, config.setup_token_file) = ([id; 16], Some(file));
        })
        .await
    };
    let (one, two) = (at(first, 1).await, at(second, 2).await);
    let token = one.setup_token();
    assert_eq!(two.setup_token(), token);
    let body = || json!({ "setup_token": token });
    let (ann, bob) = tokio::join!(one.comes("ann@example.com", body()), two.comes("bob@example.com", body()));
    let mut statuses = [ann.status, bob.status];
    statuses.sort_unstable();
    assert_eq!(statuses, [StatusCode::CREATED, StatusCode::FORBIDDEN], "{} {}", ann.text, bob.text);
    assert_eq!(one.store.count_accounts().await.unwrap(), 1);
}

#[tokio::test]
async fn an_invitation_makes_the_account_where_sign_up_is_closed() {
    let api = Api::start_closed().await;
    let ann = api.account("ann@example.com").await;
    let organisation = api.id_of(&ann).await;
    let invited = api.invited(&ann, "Bob@example.com").await;
    assert!(!invited.sent && invited.problem.is_none(), "there is no hook");
    let code = invited.code.expose();
    api.comes("bob@example.com", json!({})).await.assert_problem(StatusCode::FORBIDDEN, "sign-up-closed");
    for (email, code) in [("eve@example.com", code), ("bob@example.com", "spi_nonsense"), ("bob@example.com", "")] {
        api.comes(email, json!({ "invitation": code })).await.assert_problem(StatusCode::FORBIDDEN, "no-invitation");
    }
    let weak = json!({"name": "Bob", "email": "bob@example.com", "password": "short", "invitation": code});
    assert_eq!(api.post("/v1/accounts", None, weak).await.field(), "password");
    let made: Account = api.comes("bob@example.com", json!({ "invitation": code })).await.read(StatusCode::CREATED);
    let bob = api.login("bob@example.com").await.access_token.expose().to_owned();
    let theirs: Page<Organisation> = api.get("/v1/organisations", Some(&bob)).await.read(StatusCode::OK);
    let roles: Vec<_> = theirs.items.iter().map(|one| (one.id.to_string(), one.role.as_str(), one.own)).collect();
    assert!(roles.contains(&(organisation.clone(), "member", false)), "{roles:?}");
    let members: Page<Member> = api.get("/v1/members", Some(&ann)).await.read(StatusCode::OK);
    assert!(members.items.iter().any(|member| member.id == made.id));
    // It is used up for everyone.
    let again = json!({ "invitation": code });
    api.comes("bob@example.com", again.clone()).await.assert_problem(StatusCode::FORBIDDEN, "no-invitation");
    api.comes("carl@example.com", again).await.assert_problem(StatusCode::FORBIDDEN, "no-invitation");
    assert!(
        api.actions(&ann).await.contains(&"account.create-by-invitation".to_owned()),
        "the organisation's log has the event"
    );

    // An existing account accepts; a code ends after a week, and when it is withdrawn.
    let second = api.invited(&ann, "carl@example.com").await;
    api.clock.pass(7 * 86_400);
    let late = api.comes("carl@example.com", json!({ "invitation": second.code })).await;
    late.assert_problem(StatusCode::FORBIDDEN, "no-invitation");
    let ann = api.login("ann@example.com").await.access_token.expose().to_owned();
    let third = api.invited(&ann, "carl@example.com").await;
    let path = format!("/v1/invitations/{}", third.details.id);
    assert_eq!(api.send("DELETE", &path, Some(&ann), None).await.status, StatusCode::NO_CONTENT);
    let withdrawn = api.comes("carl@example.com", json!({ "invitation": third.code })).await;
    withdrawn.assert_problem(StatusCode::FORBIDDEN, "no-invitation");
}

#[tokio::test]
async fn the_hook_sends_invitations_and_limits_them_by_address() {
    let hook = FakeHook::start().await;
    let api = Api::start_with_hook(&hook.url, SECRET).await;
    let ann = api.account("ann@example.com").await;
    let invited = api.invited(&ann, "bob@example.com").await;
    assert!(invited.sent && invited.problem.is_none());
    let message = hook.waits_for(1).await.json();
    assert_eq!(
        (message["kind"].as_str(), message["email"].as_str()),
        (Some("account-invitation"), Some("bob@example.com"))
    );
    assert_eq!((message["code"].as_str(), message["link"].is_null()), (Some(invited.code.expose()), true));
    assert_eq!(message["organisation_name"], "Ann");
    let command = message["command"].as_str().unwrap();
    assert!(command.starts_with("sallyport account create --api https://api.localhost:8443 --name "), "{command}");
    assert!(command.ends_with(&format!("--email bob@example.com --invitation {}", invited.code.expose())));
    for _ in 0..2 {
        assert!(api.invited(&ann, "bob@example.com").await.sent);
    }
    let fourth = api.invited(&ann, "bob@example.com").await;
    assert!(!fourth.sent && fourth.problem.unwrap().contains("too many messages"));
    assert_eq!(hook.messages().len(), 3);
}
