//! The paths of the original clients, with what `mysocketctl` 0.15 sends and reads.

use axum::body::Body;
use http::{Request, StatusCode, header};
use sallyport_bus::ssh_login_name;
use sallyport_model::SocketType;
use sallyport_ssh::Certificate;
use serde_json::{Value, json};

use crate::{
    harness::{Api, HttpResponse, PASSWORD},
    ssh::{KEY, client},
};

/// A request as the client makes it.
async fn call(api: &Api, method: &str, path: &str, token: &str, body: Option<Value>) -> HttpResponse {
    let mut request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::ACCEPT, "application/json")
        .header(header::CONTENT_TYPE, "application/json");
    if !token.is_empty() {
        request = request.header("x-access-token", token);
    }
    api.raw(request.body(body.map_or_else(Body::empty, |body| Body::from(body.to_string()))).unwrap()).await
}

async fn get(api: &Api, path: &str, token: &str) -> Value {
    call(api, "GET", path, token, None).await.read(StatusCode::OK)
}

async fn post(api: &Api, path: &str, token: &str, body: Value) -> Value {
    call(api, "POST", path, token, Some(body)).await.read(StatusCode::OK)
}

/// Asserts an error in the form of these clients, and returns its message.
#[track_caller]
fn assert_error(response: &HttpResponse, status: StatusCode) -> String {
    assert_eq!(response.status, status, "{}", response.text);
    assert_eq!(response.headers[header::CONTENT_TYPE], "application/json");
    let json = response.json();
    assert_eq!(json["status_code"], status.as_u16());
    json["error_message"].as_str().unwrap().to_owned()
}

fn new_user(email: &str) -> Value {
    json!({"name": "Ann", "email": email, "password": PASSWORD, "sshkey": format!("{KEY}\n")})
}

/// The body of the client's `connect`.
fn connect_body(name: &str, socket_type: &str) -> Value {
    json!({
        "name": name, "protected_socket": false, "protected_username": "", "protected_password": "",
        "socket_type": socket_type, "cloud_authentication_enabled": false,
        "cloud_authentication_email_allowed_addressses": [], "cloud_authentication_email_allowed_domains": [],
    })
}

/// An account and its token.
async fn login(api: &Api, email: &str) -> String {
    post(api, "/user", "", new_user(email)).await;
    let token = post(api, "/login", "", json!({"email": email, "password": PASSWORD})).await;
    token["token"].as_str().unwrap().to_owned()
}

/// The claim `user_id`, read unverified as by the client.
fn user_id(token: &str) -> String {
    use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
    let claims = URL_SAFE_NO_PAD.decode(token.split('.').nth(1).unwrap()).unwrap();
    serde_json::from_slice::<Value>(&claims).unwrap()["user_id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn an_account_is_made_and_logs_in() {
    let api = Api::start().await;
    let token = login(&api, "ann@example.com").await;
    let id = user_id(&token);
    let user = get(&api, &format!("/user/{id}"), &token).await;
    assert_eq!(
        (&user["name"], &user["email"], &user["user_id"]),
        (&json!("Ann"), &json!("ann@example.com"), &json!(id))
    );
    assert_eq!((&user["user_name"], &user["sshkey"]), (&json!(id.replace('-', "")), &json!(KEY)));
    assert_eq!(api.ssh_logins.get(user["user_name"].as_str().unwrap()).unwrap().keys, [KEY]);
    let other = login(&api, "bob@example.com").await;
    assert_error(&call(&api, "GET", &format!("/user/{id}"), &other, None).await, StatusCode::NOT_FOUND);

    let refreshed = post(&api, "/login/refresh", &token, json!({})).await;
    let refreshed = refreshed["token"].as_str().unwrap();
    assert_eq!((user_id(refreshed), get(&api, "/socket", refreshed).await), (id, json!([])));
    api.clock.pass(86_400 + 61);
    let says = assert_error(&call(&api, "GET", "/socket", &token, None).await, StatusCode::UNAUTHORIZED);
    assert!(says.contains("expired: log in again"), "{says}");
}

#[tokio::test]
async fn connect_makes_a_socket_and_its_tunnel() {
    let api = Api::start().await;
    let token = login(&api, "ann@example.com").await;
    let made = post(&api, "/connect", &token, connect_body("Local port 8000", "http")).await;
    let socket = api.routes.by_name(made["dnsname"].as_str().unwrap().strip_suffix(".localhost").unwrap()).unwrap();
    assert_eq!((&made["socket_type"], &made["socket_tcp_ports"]), (&json!("http"), &json!([8443])));
    assert_eq!((&made["protected_socket"], &made["cloud_authentication_enabled"]), (&json!(false), &json!(false)));
    assert_eq!(made["user_name"], json!(ssh_login_name(socket.account)));
    let tunnel = &made["tunnels"][0];
    assert_eq!((&tunnel["tunnel_server"], &tunnel["tunnel_server_port"]), (&json!("tunnel.localhost"), &json!(2222)));
    // The port for ssh leads to this tunnel.
    let port = u32::try_from(tunnel["local_port"].as_u64().unwrap()).unwrap();
    let target = api.control.ssh_forward_target(&client(socket.account), "localhost", port).await.unwrap();
    assert_eq!(json!(target.tunnel), tunnel["tunnel_id"]);
    assert_eq!((target.socket, target.temporary), (socket.id, false));

    let listed = get(&api, "/connect", &token).await;
    assert_eq!((&listed, &get(&api, "/socket", &token).await), (&json!([made]), &json!([made])));
    let path = format!("/socket/{}", made["socket_id"].as_str().unwrap());
    assert_eq!(get(&api, &path, &token).await, made);
    assert_eq!(call(&api, "DELETE", &path, &token, None).await.status, StatusCode::NO_CONTENT);
    assert!(api.routes.get(socket.id).is_none());
    assert_error(&call(&api, "DELETE", &path, &token, None).await, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn sockets_of_every_type_are_made_and_changed() {
    let api = Api::start().await;
    let token = login(&api, "ann@example.com").await;
    for (kind, ports) in [("https", json!([8443])), ("tcp", json!([20_000])), ("tls", json!([8443, 20_001]))] {
        let made = post(&api, "/socket", &token, connect_body("s", kind)).await;
        assert_eq!(
            (&made["socket_type"], &made["socket_tcp_ports"], &made["tunnels"]),
            (&json!(kind), &ports, &json!([]))
        );
    }
    let mut protected = connect_body("secret", "http");
    protected["protected_socket"] = json!(true);
    protected["protected_username"] = json!("u");
    protected["protected_password"] = json!("pass word");
    let made = post(&api, "/socket", &token, protected.clone()).await;
    assert_eq!((&made["protected_username"], &made["protected_password"]), (&json!("u"), &json!("")));
    let path = format!("/socket/{}", made["socket_id"].as_str().unwrap());
    let put = async |body| call(&api, "PUT", &path, &token, Some(body)).await.read::<Value>(StatusCode::OK);
    let hash =
        || api.routes.by_name(made["dnsname"].as_str().unwrap().split('.').next().unwrap()).unwrap().basic_auth.clone();
    let former = hash();
    protected["protected_password"] = json!("");
    protected["name"] = json!("renamed");
    let renamed = put(protected.clone()).await;
    assert_eq!((&renamed["name"], hash()), (&json!("renamed"), former.clone()), "the password is kept");
    protected["protected_password"] = json!("another");
    put(protected).await;
    assert!(hash().is_some() && hash() != former);
    let kept = put(json!({"socket_type": "https"})).await;
    assert_eq!((&kept["socket_type"], &kept["protected_socket"]), (&json!("https"), &json!(true)));
    put(connect_body("open", "https")).await;
    assert_eq!(hash(), None);
}

#[tokio::test]
async fn tunnels_are_made_listed_and_removed() {
    let api = Api::start().await;
    let token = login(&api, "ann@example.com").await;
    let socket = post(&api, "/socket", &token, connect_body("s", "http")).await;
    let path = format!("/socket/{}/tunnel", socket["socket_id"].as_str().unwrap());
    let first = post(&api, &path, &token, json!({})).await;
    let second = post(&api, &path, &token, json!({})).await;
    assert_ne!(first["local_port"], second["local_port"]);
    assert_eq!(get(&api, &path, &token).await, json!([first, second]));
    let one = format!("{path}/{}", first["tunnel_id"].as_str().unwrap());
    assert_eq!(get(&api, &one, &token).await, first);
    assert_eq!(call(&api, "DELETE", &one, &token, None).await.status, StatusCode::NO_CONTENT);
    assert_error(&call(&api, "GET", &one, &token, None).await, StatusCode::NOT_FOUND);
    let other = login(&api, "bob@example.com").await;
    assert_error(&call(&api, "GET", &path, &other, None).await, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_key_is_signed_for_a_tunnel_of_the_caller_alone() {
    let api = Api::start().await;
    let token = login(&api, "ann@example.com").await;
    let socket = post(&api, "/connect", &token, connect_body("s", "http")).await;
    let (id, tunnel) = (socket["socket_id"].as_str().unwrap(), socket["tunnels"][0]["tunnel_id"].as_str().unwrap());
    let path = format!("/socket/{id}/tunnel/{tunnel}/signkey");
    let signed = post(&api, &path, &token, json!({"ssh_public_key": format!("{KEY}\n")})).await;
    assert_eq!(signed.as_object().unwrap().len(), 1, "{signed}");
    let certificate = Certificate::from_openssh(signed["signed_ssh_cert"].as_str().unwrap()).unwrap();
    assert_eq!(certificate.valid_principals(), [socket["user_name"].as_str().unwrap()]);
    assert!(certificate.key_id().ends_with(&format!("socket {id} tunnel {tunnel}")), "{}", certificate.key_id());
    for bad in [json!({"ssh_public_key": "ssh-dss AAAA"}), json!({"ssh_public_key": ""}), json!({})] {
        let response = call(&api, "POST", &path, &token, Some(bad)).await;
        assert_error(&response, StatusCode::UNPROCESSABLE_ENTITY);
    }
    let other = login(&api, "bob@example.com").await;
    let key = || Some(json!({"ssh_public_key": KEY}));
    assert_error(&call(&api, "POST", &path, &other, key()).await, StatusCode::NOT_FOUND);
    assert_error(&call(&api, "POST", &path, "", key()).await, StatusCode::UNAUTHORIZED);
    call(&api, "DELETE", &format!("/socket/{id}/tunnel/{tunnel}"), &token, None).await;
    assert_error(&call(&api, "POST", &path, &token, key()).await, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn errors_have_the_form_that_these_clients_print() {
    let api = Api::start().await;
    let token = login(&api, "ann@example.com").await;
    let bearer = api.login("ann@example.com").await.access_token.expose().to_owned();
    for bad in ["", "nonsense", bearer.as_str()] {
        assert_error(&call(&api, "GET", "/connect", bad, None).await, StatusCode::UNAUTHORIZED);
    }
    api.get("/v1/sockets", Some(&token)).await.assert_problem(StatusCode::UNAUTHORIZED, "bad-token");
    let wrong = json!({"email": "ann@example.com", "password": "wrong password"});
    assert_error(&call(&api, "POST", "/login", "", Some(wrong)).await, StatusCode::UNAUTHORIZED);
    assert_error(&call(&api, "POST", "/user", "", Some(new_user("ann@example.com"))).await, StatusCode::CONFLICT);
    let weak = json!({"name": "b", "email": "b@example.com", "password": "short", "sshkey": ""});
    let says = assert_error(&call(&api, "POST", "/user", "", Some(weak)).await, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(says.starts_with("password: "), "{says}");
    let no_key = json!({"name": "b", "email": "b@example.com", "password": PASSWORD, "sshkey": "no key"});
    assert_error(&call(&api, "POST", "/user", "", Some(no_key)).await, StatusCode::UNPROCESSABLE_ENTITY);

    let mut cloud = connect_body("s", "http");
    cloud["cloud_authentication_enabled"] = json!(true);
    let says =
        assert_error(&call(&api, "POST", "/connect", &token, Some(cloud)).await, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(says.contains("every client would be denied"), "{says}");
    let mut no_password = connect_body("s", "http");
    no_password["protected_socket"] = json!(true);
    for body in [json!({}), connect_body("", "http"), connect_body("s", "gopher"), no_password] {
        assert_error(&call(&api, "POST", "/socket", &token, Some(body)).await, StatusCode::UNPROCESSABLE_ENTITY);
    }
    assert_error(&call(&api, "PATCH", "/socket", &token, None).await, StatusCode::METHOD_NOT_ALLOWED);
    // The Go clients log in only with a version.
    let version = api.get("/latest_version.txt", None).await;
    assert_eq!((version.status, version.header("content-type")), (StatusCode::OK, Some("text/plain; charset=utf-8")));
    assert_eq!(version.text.trim(), env!("CARGO_PKG_VERSION"));
    assert_error(&call(&api, "GET", "/mtls-ca/socket/x/other", &token, None).await, StatusCode::NOT_FOUND);
    assert_eq!(get(&api, "/socket", &token).await, json!([]), "nothing was made");
    for _ in 0..5 {
        post(&api, "/socket", &token, connect_body("s", "tcp")).await;
    }
    let full = call(&api, "POST", "/connect", &token, Some(connect_body("s", "tcp"))).await;
    assert!(assert_error(&full, StatusCode::CONFLICT).contains("all ports from 20000 to 20004"));
    let types: Vec<_> = api.routes.all().iter().map(|route| route.socket_type).collect();
    assert_eq!(types, [SocketType::Tcp; 5]);
}

#[tokio::test]
async fn cloud_authentication_is_the_identity_setting_of_the_socket() {
    let api = Api::start().await;
    let token = login(&api, "cloud@example.com").await;
    let mut cloud = connect_body("s", "http");
    cloud["cloud_authentication_enabled"] = json!(true);
    cloud["cloud_authentication_email_allowed_addressses"] = json!(["Ann@Example.com", ""]);
    cloud["cloud_authentication_email_allowed_domains"] = json!("mycorp.com, other.org");
    let made = post(&api, "/socket", &token, cloud.clone()).await;
    assert_eq!(made["cloud_authentication_enabled"], json!(true));
    assert_eq!(made["cloud_authentication_email_allowed_addressses"], json!(["ann@example.com"]));
    assert_eq!(made["cloud_authentication_email_allowed_domains"], json!(["mycorp.com", "other.org"]));
    let path = format!("/socket/{}", made["socket_id"].as_str().unwrap());
    let label = made["dnsname"].as_str().unwrap().strip_suffix(".localhost").unwrap();
    let identity = || api.routes.by_name(label).unwrap().settings.identity.clone();
    assert_eq!(identity().unwrap().email_domains.len(), 2);

    let put = async |body: Value| call(&api, "PUT", &path, &token, Some(body)).await;
    assert_eq!(put(json!({"name": "t"})).await.status, StatusCode::OK);
    assert_eq!(identity().unwrap().email_addresses.len(), 1, "it stays");
    let lists = json!({
        "cloud_authentication_email_allowed_addressses": [],
        "cloud_authentication_email_allowed_domains": null
    });
    assert_eq!(put(lists).await.status, StatusCode::OK);
    assert_eq!((identity().unwrap().email_addresses.len(), identity().unwrap().email_domains.len()), (0, 2));
    assert_error(
        &put(json!({"cloud_authentication_email_allowed_domains": []})).await,
        StatusCode::UNPROCESSABLE_ENTITY,
    );
    assert_error(
        &put(json!({"cloud_authentication_email_allowed_domains": ["*"]})).await,
        StatusCode::UNPROCESSABLE_ENTITY,
    );
    assert_eq!(put(json!({"cloud_authentication_enabled": false})).await.status, StatusCode::OK);
    assert_eq!(identity(), None);
    cloud["socket_type"] = json!("tcp");
    assert_error(&call(&api, "POST", "/socket", &token, Some(cloud)).await, StatusCode::UNPROCESSABLE_ENTITY);
}
