//! Two controls over one PostgreSQL: a login begins at one and continues at the other, and single-use values count once
//! in all.

use std::process::Command;

use http::StatusCode;
use sallyport_api::{ClientToken, DeviceLogin};
use sallyport_control::SignUp;
use sallyport_store::Store;
use serde_json::json;

use crate::{
    client::{BACK, VERIFIER, World},
    fake_provider::FakeProvider,
    harness::{Api, START, TestClock},
    login::{Browser, Shop},
    postgres,
    ssh::client,
};

/// Two controls over a new database with this name, with the same keys and clock.
async fn two(name: &str, sign_up: SignUp) -> Option<(Api, Api)> {
    let base = postgres::server()?.base();
    let mut psql = Command::new("psql");
    psql.args([&format!("{base}/postgres"), "-q", "-c"]);
    assert!(psql.arg(format!("CREATE DATABASE {name} TEMPLATE template0")).status().unwrap().success());
    let address = format!("{base}/{name}").parse().unwrap();
    let clock = TestClock::new();
    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let keys = first.path().to_owned();
    let store = Store::open_postgres(&address).await.unwrap();
    let one = Api::start_on(store, first, &keys, clock.clone(), sign_up, |config| config.id = [1; 16]).await;
    let store = Store::open_postgres(&address).await.unwrap();
    let two = Api::start_on(store, second, &keys, clock, sign_up, |config| config.id = [2; 16]).await;
    Some((one, two))
}

#[tokio::test]
async fn what_ssh_clients_have_at_one_stays_when_the_other_starts_and_looks_around() {
    let Some((one, two)) = two("sweeps", SignUp::Open).await else { return };
    let token = one.account("ann@example.com").await;
    let account = one.get("/v1/account", Some(&token)).await.read::<sallyport_api::Account>(StatusCode::OK).id;
    let held = one.control.ssh_forward_target(&client(account), "", 80).await.unwrap();
    let at_two = two.control.ssh_forward_target(&client(account), "", 80).await.unwrap();
    // A notification of changes makes a control read everything again.
    two.control.reload().await.unwrap();
    one.control.reload().await.unwrap();
    assert!(one.routes.get(held.socket).is_some() && two.routes.get(at_two.socket).is_some());
    assert_eq!(one.store.temporary_tunnels().await.unwrap().len(), 2, "neither takes the other's");
    // The first control restarts: its temporary sockets are gone, and the other's are not.
    let address = one.store.path().to_str().unwrap().parse().unwrap();
    one.store.close().await;
    let store = Store::open_postgres(&address).await.unwrap();
    let (dir, keys) = (tempfile::tempdir().unwrap(), one.dir.path().to_owned());
    let again = Api::start_on(store, dir, &keys, one.clock.clone(), SignUp::Open, |config| config.id = [1; 16]).await;
    let left = again.store.temporary_tunnels().await.unwrap();
    assert_eq!(
        left.iter().map(|(_, tunnel, holder)| (*tunnel, *holder)).collect::<Vec<_>>(),
        [(at_two.tunnel, Some([2; 16]))]
    );
    assert!(again.routes.get(held.socket).is_none() && again.routes.get(at_two.socket).is_some());
}

#[tokio::test]
async fn a_login_that_begins_at_one_ends_at_the_other() {
    let Some((one, two)) = two("logins", SignUp::Open).await else { return };
    let shop = Shop::open_in(one, START).await;
    let provider = FakeProvider::start().await;
    shop.add("dex", &provider, json!({})).await;
    let mut browser = Browser::default();
    let (_, asked) = shop.begin(&mut browser, &shop.request()).await;
    let code = provider.log_in(&asked);
    let back = Shop::back(&asked, &code);
    let mut other_browser = browser.clone();
    let grant = shop.grant(&browser.get(&two, &back).await);
    // The second control informs the edge, and the first control knows the login too: the next start asks no person.
    assert!(two.identities.session(grant.session).is_some());
    let known = shop.grant(&browser.get(&shop.api, &shop.start_path(&shop.request())).await);
    assert_eq!(known.session, grant.session);
    // The same state again, at the first control.
    let again = other_browser.get(&shop.api, &back).await;
    assert!(again.status == StatusCode::BAD_REQUEST && again.text.contains("completed already"), "{}", again.text);
    // The login ends at the first control, and is invalid at the second.
    let path = format!("/v1/login-sessions/{}", grant.session);
    let ended = shop.api.send("DELETE", &path, Some(&shop.token), None).await;
    assert_eq!(ended.status, StatusCode::NO_CONTENT, "{}", ended.text);
    let response = browser.get(&two, &shop.start_path(&shop.request())).await;
    assert!(response.header("location").unwrap().starts_with(&provider.issuer), "{response:?}");
}

#[tokio::test]
async fn codes_of_programs_are_good_once_at_both() {
    let Some((one, two)) = two("codes", SignUp::Open).await else { return };
    let world = World::at(one).await;
    let (token, socket, session, cookie) =
        (world.token.clone(), world.socket.clone(), world.session, world.cookie.clone());
    let world_at_two = World { api: two, token, socket, session, cookie };
    let code = world.code().await;
    let token: ClientToken = world_at_two.exchange(&code, VERIFIER, BACK).await.read(StatusCode::OK);
    let again = world.exchange(&code, VERIFIER, BACK).await;
    again.assert_problem(StatusCode::BAD_REQUEST, "bad-code");
    let shown = world.api.get("/v1/client", Some(token.token.expose())).await;
    assert_eq!(shown.status, StatusCode::OK, "{}", shown.text);

    // A program without a browser asks one control, and the person answers at the other.
    let begun = world.api.post("/v1/client/device", None, json!({"host": world.host()})).await;
    let login: DeviceLogin = begun.read(StatusCode::OK);
    let address = format!("/device?code={}", login.user_code);
    let page = world_at_two.get_page(&address, Some(&world.cookie)).await;
    let agreed = world_at_two.decide("/device", &page, "allow").await;
    assert!(agreed.text.contains("is logged in"), "{}", agreed.text);
    world.api.clock.pass(5);
    let body = || json!({"device_code": login.device_code.expose()});
    let (first, second) = tokio::join!(
        world.api.post("/v1/client/device/token", None, body()),
        world_at_two.api.post("/v1/client/device/token", None, body())
    );
    let mut statuses = [first.status, second.status];
    statuses.sort_unstable();
    assert_eq!(statuses, [StatusCode::OK, StatusCode::BAD_REQUEST], "{} {}", first.text, second.text);
}

#[tokio::test]
async fn only_one_account_is_the_first() {
    let Some((one, two)) = two("first", SignUp::Closed).await else { return };
    let (ann, bob) = tokio::join!(one.create_account("ann@example.com"), two.create_account("bob@example.com"));
    let mut statuses = [ann.status, bob.status];
    statuses.sort_unstable();
    assert_eq!(statuses, [StatusCode::CREATED, StatusCode::FORBIDDEN], "{} {}", ann.text, bob.text);
    assert_eq!(one.store.count_accounts().await.unwrap(), 1);
}
