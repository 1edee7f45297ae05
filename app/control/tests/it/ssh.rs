//! Stock ssh clients: keys, forwards, and temporary sockets.

use std::net::{IpAddr, Ipv4Addr};

use http::StatusCode;
use sallyport_api::{Account, Page, Socket, SshCertificate, SshKey};
use sallyport_bus::ssh_login_name;
use sallyport_control::SshClient;
use sallyport_model::{AccountId, SocketType, SshTunnelLogin};
use sallyport_ssh::Certificate;
use serde_json::json;

use crate::harness::{Api, PASSWORD, START};

pub(crate) const KEY: &str =
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJdD7y3aLq454yWBdwLWbieU1ebz9/cu7/QEXn9OIeZJ ann@laptop";

async fn account_id(api: &Api, token: &str) -> AccountId {
    api.get("/v1/account", Some(token)).await.read::<Account>(StatusCode::OK).id
}

/// An ssh client of this account without a key.
pub(crate) fn client(account: AccountId) -> SshClient {
    SshClient { account, key: None, only: None, address: Ipv4Addr::LOCALHOST.into(), holder: None }
}

/// How many keys admit the account's ssh clients.
fn keys(api: &Api, account: AccountId) -> usize {
    api.ssh_logins.get(&ssh_login_name(account)).map_or(0, |login| login.keys.len())
}

async fn refused(api: &Api, account: AccountId, address: &str, port: u32) -> String {
    api.control.ssh_forward_target(&client(account), address, port).await.expect_err("refused").message
}

#[tokio::test]
async fn a_key_is_added_listed_and_removed_at_the_edges_too() {
    let api = Api::start().await;
    let token = api.account("ann@example.com").await;
    let account = account_id(&api, &token).await;
    assert_eq!(keys(&api, account), 0);
    let response = api.post("/v1/ssh-keys", Some(&token), json!({"public_key": format!("{KEY}\n")})).await;
    let key: SshKey = response.read(StatusCode::CREATED);
    assert_eq!(response.header("location"), Some(format!("/v1/ssh-keys/{}", key.id).as_str()));
    assert_eq!((key.name.as_str(), key.public_key.as_str()), ("ann@laptop", KEY));
    assert_eq!(key.fingerprint, "SHA256:T7SvZ2cslqpPj6nKzitCBHHlpVF3r3MvLwmFL0fk0IE");
    assert_eq!(api.ssh_logins.get(&ssh_login_name(account)).unwrap().keys, [KEY]);
    let again = api.post("/v1/ssh-keys", Some(&token), json!({"name": "x", "public_key": KEY})).await;
    assert!(again.assert_problem(StatusCode::CONFLICT, "ssh-key-taken").contains("ann@laptop"));
    let bad = api.post("/v1/ssh-keys", Some(&token), json!({"public_key": "ssh-dss AAAA"})).await;
    bad.assert_problem(StatusCode::UNPROCESSABLE_ENTITY, "invalid-request");
    assert_eq!(bad.field(), "public_key");

    let other = api.account("bob@example.com").await;
    let path = format!("/v1/ssh-keys/{}", key.id);
    api.send("DELETE", &path, Some(&other), None).await.assert_problem(StatusCode::NOT_FOUND, "not-found");
    let reader = api.api_token(&token, &["account:read"]).await;
    api.send("DELETE", &path, Some(&reader), None).await.assert_problem(StatusCode::FORBIDDEN, "missing-scope");
    let api = api.restart().await;
    assert_eq!(keys(&api, account), 1, "present again after a restart");
    let listed: Page<SshKey> = api.get("/v1/ssh-keys", Some(&token)).await.read(StatusCode::OK);
    assert_eq!(listed.items, [key]);
    assert_eq!(api.send("DELETE", &path, Some(&token), None).await.status, StatusCode::NO_CONTENT);
    assert_eq!(keys(&api, account), 0);
    api.send("DELETE", &path, Some(&token), None).await.assert_problem(StatusCode::NOT_FOUND, "not-found");
}

#[tokio::test]
async fn an_account_may_bring_its_key_and_takes_it_along() {
    let api = Api::start().await;
    let body = |key: &str| json!({"name": "Ann", "email": "ann@example.com", "password": PASSWORD, "ssh_key": key});
    let bad = api.post("/v1/accounts", None, body("none")).await;
    bad.assert_problem(StatusCode::UNPROCESSABLE_ENTITY, "invalid-request");
    assert_eq!(bad.field(), "ssh_key");
    let account: Account = api.post("/v1/accounts", None, body(KEY)).await.read(StatusCode::CREATED);
    assert_eq!(account.ssh_user, ssh_login_name(account.id));
    assert_eq!(keys(&api, account.id), 1);
    let token = api.login("ann@example.com").await.access_token;
    api.send("DELETE", "/v1/account", Some(token.expose()), None).await;
    assert_eq!(keys(&api, account.id), 0);
}

#[tokio::test]
async fn a_socket_shows_its_ssh_command() {
    let api = Api::start().await;
    let token = api.account("ann@example.com").await;
    let account = account_id(&api, &token).await;
    let socket = api.socket(&token, "s").await;
    let ssh = socket.ssh.clone().unwrap();
    let (label, user) = (socket.label().unwrap(), ssh_login_name(account));
    assert_eq!(ssh.command, format!("ssh -p 2222 -R {label}:80:localhost:PORT {user}@tunnel.localhost"));
    assert_eq!((ssh.host.as_str(), ssh.port, ssh.user, ssh.known_hosts.len()), ("tunnel.localhost", 2222, user, 1));
    // The forward in the command leads to this socket.
    let target = api.control.ssh_forward_target(&client(account), label.as_str(), 80).await.unwrap();
    assert_eq!((target.socket, target.temporary, target.url), (socket.id, true, socket.url));
}

#[tokio::test]
async fn a_key_is_signed_for_one_tunnel() {
    let api = Api::start().await;
    let token = api.account("ann@example.com").await;
    let account = account_id(&api, &token).await;
    let socket = api.socket(&token, "s").await;
    let tunnel = api.tunnel(&token, &socket).await.details;
    let path = format!("/v1/sockets/{}/tunnels/{}/ssh-certificate", socket.dns_name, tunnel.id);
    let sign = async |key: &str, token: &str| api.post(&path, Some(token), json!({"public_key": key})).await;
    let signed: SshCertificate = sign(KEY, &token).await.read(StatusCode::OK);
    assert_eq!((&signed.user, signed.forward_port), (&ssh_login_name(account), tunnel.forward_port));
    assert_eq!(signed.valid_until.unix_timestamp(), START + 300);
    let certificate = Certificate::from_openssh(&signed.certificate).unwrap();
    let window = (certificate.valid_after().cast_signed(), certificate.valid_before().cast_signed());
    assert_eq!(window, (START - 300, START + 300), "by the server's clock");
    let names = certificate.key_id().parse::<SshTunnelLogin>().unwrap();
    assert_eq!(names, SshTunnelLogin { account, socket: socket.id, tunnel: tunnel.id });
    let extensions: Vec<_> = certificate.extensions().keys().map(String::as_str).collect();
    assert_eq!(extensions, ["permit-port-forwarding", "permit-pty"]);
    assert!(certificate.critical_options().is_empty());
    assert_eq!(keys(&api, account), 0, "it is no key of the account");

    let several = format!("{KEY}\n{KEY}");
    for bad in ["", "ssh-dss AAAA", "ssh-ed25519 AAAA", several.as_str(), signed.certificate.as_str()] {
        let response = sign(bad, &token).await;
        response.assert_problem(StatusCode::UNPROCESSABLE_ENTITY, "invalid-request");
        assert_eq!(response.field(), "public_key");
    }
    let other = api.account("bob@example.com").await;
    sign(KEY, &other).await.assert_problem(StatusCode::NOT_FOUND, "not-found");
    let reader = api.api_token(&token, &["sockets:read"]).await;
    sign(KEY, &reader).await.assert_problem(StatusCode::FORBIDDEN, "missing-scope");
    let connector = api.api_token(&token, &["tunnels:connect"]).await;
    sign(KEY, &connector).await.read::<SshCertificate>(StatusCode::OK);
}

#[tokio::test]
async fn a_login_for_one_tunnel_gets_that_by_its_port_and_nothing_else() {
    let api = Api::start().await;
    let token = api.account("ann@example.com").await;
    let account = account_id(&api, &token).await;
    let (socket, other) = (api.socket(&token, "s").await, api.socket(&token, "other").await);
    let tunnel = api.tunnel(&token, &socket).await.details;
    let beside = api.tunnel(&token, &socket).await.details;
    let elsewhere = api.tunnel(&token, &other).await.details;
    let only = SshTunnelLogin { account, socket: socket.id, tunnel: tunnel.id };
    let login = SshClient { only: Some(only), ..client(account) };
    let own = u32::from(tunnel.forward_port);
    for address in ["localhost", "", "127.0.0.1", socket.dns_name.as_str()] {
        let target = api.control.ssh_forward_target(&login, address, own).await.unwrap();
        assert_eq!((target.socket, target.tunnel, target.temporary), (socket.id, tunnel.id, false), "{address}");
    }
    let (label, other_label) = (socket.label().unwrap().to_string(), other.label().unwrap().to_string());
    for (address, port) in [
        ("", u32::from(beside.forward_port)),
        ("", u32::from(elsewhere.forward_port)),
        (label.as_str(), 80),
        (label.as_str(), u32::from(beside.forward_port)),
        (other_label.as_str(), own),
        (other_label.as_str(), 80),
        ("", 80),
        ("", 443),
        ("", 0),
        ("", 20_000),
    ] {
        let refusal = api.control.ssh_forward_target(&login, address, port).await.expect_err("refused").message;
        let says = format!("one tunnel alone: ask for its forward port, -R {own}:");
        assert!(refusal.contains(&says), "{address}:{port}: {refusal}");
    }
    assert_eq!(api.routes.all().len(), 2, "nothing was made");
    assert_eq!(api.routes.get(socket.id).unwrap().tunnels.len() + api.routes.get(other.id).unwrap().tunnels.len(), 3);
    let path = format!("/v1/sockets/{}/tunnels/{}", socket.id, tunnel.id);
    api.send("DELETE", &path, Some(&token), None).await;
    let gone = api.control.ssh_forward_target(&login, "", own).await.expect_err("refused").message;
    assert!(gone.contains("was deleted"), "{gone}");
}

#[tokio::test]
async fn a_forward_port_means_its_tunnel() {
    let api = Api::start().await;
    let token = api.account("ann@example.com").await;
    let account = account_id(&api, &token).await;
    let socket = api.socket(&token, "s").await;
    let tunnel = api.tunnel(&token, &socket).await.details;
    for address in ["localhost", "", "127.0.0.1", socket.dns_name.as_str()] {
        let port = u32::from(tunnel.forward_port);
        let target = api.control.ssh_forward_target(&client(account), address, port).await.unwrap();
        assert_eq!((target.socket, target.tunnel, target.temporary), (socket.id, tunnel.id, false), "{address}");
        api.control.ssh_forward_ended(&target).await;
    }
    assert_eq!(api.routes.get(socket.id).unwrap().tunnels.len(), 1, "a tunnel that stays is not removed");
    let other = account_id(&api, &api.account("bob@example.com").await).await;
    let says = refused(&api, other, "localhost", tunnel.forward_port.into()).await;
    assert!(says.contains("cannot be forwarded: ask for"), "{says}");
    let says = refused(&api, other, &socket.dns_name, 80).await;
    assert!(says.contains("cannot be forwarded"), "the socket of another account: {says}");
}

#[tokio::test]
async fn the_name_of_a_socket_makes_a_tunnel_for_as_long_as_the_forward() {
    let api = Api::start().await;
    let token = api.account("ann@example.com").await;
    let account = account_id(&api, &token).await;
    let socket = api.socket(&token, "s").await;
    let target = api.control.ssh_forward_target(&client(account), &socket.dns_name, 0).await.unwrap();
    assert_eq!((target.socket, target.temporary, target.port), (socket.id, true, None));
    assert_eq!(api.routes.get(socket.id).unwrap().tunnels[0].id, target.tunnel);
    let forward_port = api.routes.get(socket.id).unwrap().tunnels[0].forward_port;
    refused(&api, account, "localhost", forward_port.into()).await;
    api.control.ssh_forward_ended(&target).await;
    assert!(api.routes.get(socket.id).unwrap().tunnels.is_empty());
    api.control.ssh_forward_ended(&target).await;

    let udp: Socket =
        api.post("/v1/sockets", Some(&token), json!({"name": "d", "type": "udp"})).await.read(StatusCode::CREATED);
    assert!(refused(&api, account, &udp.dns_name, 53).await.contains("no datagrams"));
}

#[tokio::test]
async fn ports_make_sockets_for_as_long_as_the_forward() {
    let api = Api::start().await;
    let token = api.account("ann@example.com").await;
    let account = account_id(&api, &token).await;
    for (address, port, kind, own) in [
        ("localhost", 80, SocketType::Http, None),
        ("*", 443, SocketType::Https, None),
        ("", 0, SocketType::Tcp, Some(20_000)),
        ("0.0.0.0", 20_003, SocketType::Tcp, Some(20_003)),
    ] {
        let target = api.control.ssh_forward_target(&client(account), address, port).await.unwrap();
        let route = api.routes.get(target.socket).unwrap();
        assert_eq!((route.socket_type, route.port, target.port), (kind, own, own), "{address}:{port}");
        assert_eq!((route.tunnels[0].id, target.temporary), (target.tunnel, true));
        assert!(target.url.contains(route.name.as_str()), "{}", target.url);
        api.control.ssh_forward_ended(&target).await;
        assert!(api.routes.get(target.socket).is_none());
    }
    let held = api.control.ssh_forward_target(&client(account), "", 20_003).await.unwrap();
    assert!(refused(&api, account, "", 20_003).await.contains("port 20003 belongs to another socket"));
    for (address, port) in
        [("", 22), ("", 8_080), ("", 65_536), ("example.com", 80), ("no-such-1000", 80), ("\u{7}", 1)]
    {
        let says = refused(&api, account, address, port).await;
        assert!(!says.contains('\u{7}') && says.len() < 400, "{says}");
    }
    // A crash leaves it behind; the next start removes it.
    let api = api.restart().await;
    assert!(api.routes.get(held.socket).is_none());
    assert_eq!(api.store.temporary_sockets().await.unwrap(), []);
}

#[tokio::test]
async fn the_same_key_gets_the_same_name_and_port_when_they_are_free() {
    let api = Api::start().await;
    let account = account_id(&api, &api.account("ann@example.com").await).await;
    let other = account_id(&api, &api.account("bob@example.com").await).await;
    let with_key = |account, key: &str| SshClient { key: Some(key.to_owned()), ..client(account) };
    let (home, work) = (with_key(account, "SHA256:home"), with_key(account, "SHA256:work"));
    let wishes = [(80, "http"), (443, "https"), (0, "tcp"), (20_003, "tcp")];
    let mut first = Vec::new();
    for (port, _) in wishes {
        first.push(api.control.ssh_forward_target(&home, "", port).await.unwrap());
    }
    let web = api.control.ssh_forward_target(&home, "localhost", 80).await.unwrap();
    assert_ne!(web.url, first[0].url, "the first one is not free");
    for target in &first {
        api.control.ssh_forward_ended(target).await;
    }
    // Others get another name: another key, no key, another account with the same key.
    for stranger in [work, client(account), with_key(other, "SHA256:home")] {
        for port in [80, 0] {
            let target = api.control.ssh_forward_target(&stranger, "", port).await.unwrap();
            assert!(first.iter().all(|first| first.url != target.url), "{}", target.url);
        }
    }
    let api = api.restart().await;
    for ((port, kind), first) in wishes.into_iter().zip(&first) {
        let again = api.control.ssh_forward_target(&home, "*", port).await.unwrap();
        assert_eq!((&again.url, again.port), (&first.url, first.port), "{kind}");
    }
    // A client that asks for this port gets it; it is not reserved.
    let held = api.control.ssh_forward_target(&home, "", 0).await.unwrap();
    api.control.ssh_forward_ended(&held).await;
    let port = held.port.unwrap();
    api.control.ssh_forward_target(&client(other), "", port.into()).await.unwrap();
    let moved = api.control.ssh_forward_target(&home, "", 0).await.unwrap();
    assert_ne!(moved.port, held.port);
}

#[tokio::test]
async fn what_is_held_survives_that_control_looks_at_the_store_again() {
    let api = Api::start().await;
    let token = api.account("ann@example.com").await;
    let account = account_id(&api, &token).await;
    let socket = api.socket(&token, "s").await;
    let held = api.control.ssh_forward_target(&client(account), "", 80).await.unwrap();
    let at = api.control.ssh_forward_target(&client(account), &socket.dns_name, 80).await.unwrap();
    assert_eq!(api.control.reload().await.unwrap(), 0);
    assert_eq!(api.routes.get(held.socket).unwrap().tunnels.len(), 1);
    assert_eq!(api.routes.get(at.socket).unwrap().tunnels.len(), 1);
}

#[tokio::test]
async fn ssh_clients_without_an_account_have_temporary_sockets() {
    let api = Api::start_closed().await;
    let guests = api.control.guest_account().await.unwrap();
    assert_eq!(api.control.guest_account().await.unwrap(), guests);
    let target = api.control.ssh_forward_target(&client(guests), "localhost", 80).await.unwrap();
    assert!(target.temporary && api.routes.get(target.socket).is_some());
    assert!(refused(&api, guests, "localhost", 22).await.contains("without an account"));
    let guest_at = |address: IpAddr| SshClient { address, ..client(guests) };
    for n in 1..100 {
        let guest = guest_at([127, 0, n, 1].into());
        api.control.ssh_forward_target(&guest, "", 80).await.unwrap_or_else(|e| panic!("{n}: {e}"));
    }
    let says = refused(&api, guests, "", 80).await;
    assert!(says.contains("no more than 100 sockets for guests"), "{says}");
    api.control.ssh_forward_ended(&target).await;
    api.control.ssh_forward_target(&client(guests), "", 80).await.unwrap();
    // The first account can still be made, and no login to the account of clients without an account is possible.
    let login = json!({"email": "guests@guests.invalid", "password": "!"});
    api.post("/v1/login", None, login).await.assert_problem(StatusCode::UNAUTHORIZED, "wrong-login");
    assert_eq!(api.create_account("ann@example.com").await.status, StatusCode::CREATED);
}

#[tokio::test]
async fn clients_of_one_address_without_an_account_have_few_sockets_and_ports() {
    let api = Api::start_with_ports(2).await;
    let guests = api.control.guest_account().await.unwrap();
    let guest_at = |address: &str| SshClient { address: address.parse().unwrap(), ..client(guests) };
    let ask = async |client: &SshClient, port| api.control.ssh_forward_target(client, "", port).await;
    let (here, neighbour) = (guest_at("2001:db8::1"), guest_at("2001:db8::ffff:2"));
    let elsewhere = guest_at("2001:db8:0:1::1");
    let mut held = Vec::new();
    for client in [&here, &neighbour, &here, &neighbour, &here] {
        held.push(ask(client, 80).await.unwrap());
    }
    for client in [&here, &neighbour] {
        let says = ask(client, 80).await.unwrap_err().message;
        assert!(says.contains("no more than 5 sockets without an account for one address"), "{says}");
    }
    ask(&elsewhere, 0).await.unwrap();
    ask(&elsewhere, 0).await.unwrap();
    let says = ask(&elsewhere, 0).await.unwrap_err().message;
    assert!(says.contains("no more than 2 ports for guests at a time"), "what has no port is left: {says}");
    ask(&elsewhere, 80).await.unwrap();
    api.control.ssh_forward_ended(&held[0]).await;
    ask(&neighbour, 80).await.unwrap();
    assert!(ask(&here, 80).await.is_err());

    // A client that ends and makes forwards in a loop is stopped.
    let looping = guest_at("192.0.2.7");
    let mut made = 0;
    let says = loop {
        match ask(&looping, 80).await {
            Ok(target) => api.control.ssh_forward_ended(&target).await,
            Err(refusal) => break refusal.message,
        }
        made += 1;
        assert!(made < 1_000, "nothing stops the loop");
    };
    assert!(made >= 60 && says.contains("too many sockets without an account"), "{made}: {says}");

    // An account has its own bound, and the bound on ports.
    let token = api.account("ann@example.com").await;
    let ann = SshClient { address: here.address, ..client(account_id(&api, &token).await) };
    for port in [80, 80, 80, 80, 80, 80, 0, 20_003] {
        ask(&ann, port).await.unwrap();
    }
    let says = ask(&ann, 0).await.unwrap_err().message;
    assert!(says.contains("no more than 2 sockets with a port of their own for one account"), "{says}");
}
