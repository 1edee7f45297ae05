//! Every endpoint of the description, called without the right: strangers reach nothing of an organisation, and viewers
//! change nothing.
//!
//! The endpoints come from the description of the API. New ones are covered automatically; exceptions must be named.

use std::{collections::BTreeMap, time::SystemTime};

use http::StatusCode;
use sallyport_api::CreatedToken;
use sallyport_bus::LiveFlow;
use sallyport_model::{
    AccountId, CertificateId, DomainId, Encapsulation, LoginSession, LoginSessionId, Person, SiteBalancer, SocketType,
    ZoneId, ZoneRecord, ZoneRecordId,
};
use sallyport_store::{IssuedChain, StoreError, StoredDomain, StoredZone, StoredZoneRecord, WantedCertificate};
use serde_json::{Value, json};

use crate::{
    harness::{Api, PASSWORD, START},
    ssh::KEY,
};

/// Endpoints without an account: for everyone, or for persons' programs.
const NOT_OF_ACCOUNTS: [&str; 14] = [
    "get_info",
    "create_account",
    "forgot_account_password",
    "set_account_password",
    "login",
    "refresh",
    "logout",
    "get_client_login",
    "end_client_login",
    "exchange_client_code",
    "begin_device_login",
    "exchange_device_code",
    "create_client_certificate",
    "create_client_ssh_certificate",
];
/// Endpoints about the account itself.
const OF_PERSONS: [&str; 17] = [
    "get_account",
    "delete_account",
    "change_account_password",
    "begin_account_totp",
    "confirm_account_totp",
    "disable_account_totp",
    "renew_account_recovery_codes",
    "list_account_sessions",
    "end_account_session",
    "end_other_account_sessions",
    "list_ssh_keys",
    "create_ssh_key",
    "delete_ssh_key",
    "list_received_invitations",
    "accept_invitation",
    "decline_invitation",
    "list_organisations",
];
/// Endpoints for the account that owns the installation.
const OF_THE_INSTALLATION: [&str; 43] = [
    "reset_account",
    "list_edges",
    "list_ways",
    "measure_way",
    "list_edge_clients",
    "get_anycast_dials",
    "set_anycast_dials",
    "resolve_anycast",
    "list_anycast_prefixes",
    "create_anycast_prefix",
    "delete_anycast_prefix",
    "list_anycast_peers",
    "create_anycast_peer",
    "delete_anycast_peer",
    "list_anycast_orders",
    "create_anycast_order",
    "delete_anycast_order",
    "get_anycast_status",
    "preview_anycast",
    "explain_anycast",
    "list_egress_addresses",
    "create_egress_address",
    "delete_egress_address",
    "list_egress_slices",
    "create_egress_slice",
    "move_egress_slice",
    "delete_egress_slice",
    "list_balancers",
    "get_balancer",
    "set_balancer",
    "delete_balancer",
    "list_catchment",
    "suggest_catchment_change",
    "start_measurement",
    "list_measurements",
    "import_catchment",
    "delete_edge",
    "drain_edge",
    "resume_edge",
    "create_edge_token",
    "list_edge_tokens",
    "delete_edge_token",
    "hand_installation_over",
];
/// What viewers may do: things about themselves, or without a change.
const FOR_VIEWERS: [&str; 5] =
    ["create_token", "delete_token", "leave_organisation", "preview_socket_plan", "test_policy"];
/// What viewers may not read: it names persons and addresses.
const NOT_SHOWN: [&str; 5] = ["list_audit_events", "verify_audit_log", "list_flows", "list_persons", "get_person"];
/// What is not compared: the audit log grows by itself, a socket without limits has no plan, and a client must be named.
const NOT_COMPARED: [&str; 4] = ["list_audit_events", "verify_audit_log", "get_socket_plan", "resolve_anycast"];

/// The policy of a network.
const POLICY: &str = "network = \"secret\"\n[[allow]]\nname = \"ping\"\nservices = [\"icmp\"]\n";

/// One endpoint, with ids of the organisation in its path.
struct Endpoint {
    id: String,
    method: String,
    path: String,
    body: Option<Value>,
    names_something: bool,
}

/// An organisation that has one of everything.
struct FullOrganisation {
    api: Api,
    owner: String,
    id: String,
    socket: String,
    tunnel: String,
    origin: String,
    policy: String,
    token: String,
    ssh_key: String,
    service_token: String,
    login_session: String,
    invitation: String,
    record: String,
    viewer: String,
    viewer_id: String,
    stranger: String,
    _flow: sallyport_bus::FlowGuard,
}

/// Gives an organisation a domain, a zone with a record, and a certificate. Returns the id of the record.
async fn names_of(api: &Api, organisation: AccountId) -> String {
    let (name, now) = ("secret.example.org", api.clock.unix_seconds());
    let domain = StoredDomain {
        id: DomainId::from_random([1; 16]),
        organisation,
        name: name.parse().unwrap(),
        socket: None,
        verified_at: Some(now),
        missing_since: None,
        checked_at: None,
        problem: None,
        check_at: i64::MAX,
        created_at: now,
    };
    api.store.create_domain(&domain).await.unwrap();
    let (id, organisation) = (ZoneId::from_random([2; 16]), Some(organisation));
    let zone = StoredZone { id, organisation, apex: name.to_owned(), serial: 1, created_at: now };
    api.store.create_zone(&zone, &[]).await.unwrap();
    let content = ZoneRecord { name: name.into(), record_type: "TXT".into(), ttl: 60, value: "secret".into() };
    let record = StoredZoneRecord { id: ZoneRecordId::from_random([3; 16]), record: content };
    let added = std::slice::from_ref(&record);
    api.store.change_zone(id, (added, &[]), None, now, |_| Ok::<(), StoreError>(())).await.unwrap();
    let (id, names) = (CertificateId::from_random([4; 16]), vec![domain.name]);
    let wanted = WantedCertificate { id, organisation, names };
    let issued = IssuedChain { chain: "x".into(), sealed_key: "y".into(), not_before: now, not_after: now + 9 };
    api.store.import_certificate(&wanted, &issued, now).await.unwrap();
    record.id.to_string()
}

impl FullOrganisation {
    async fn build() -> Self {
        let api = Api::start().await;
        let owner = api.account("ann@example.com").await;
        let id = api.id_of(&owner).await;
        let made = |path: &'static str, body: Value| {
            let (api, owner) = (&api, &owner);
            async move {
                let response = api.post(path, Some(owner), body).await;
                assert!(response.status.is_success(), "{path}: {}", response.text);
                response.json()
            }
        };
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let socket = api.socket(&owner, "secret-socket").await;
        let tunnel = api.tunnel(&owner, &socket).await.details.id.to_string();
        let origin = api
            .post(&format!("/v1/sockets/{}/origins", socket.id), Some(&owner), json!({"address": "10.0.0.7:80"}))
            .await;
        let origin = text(&origin.json()["id"]);
        let document = json!({"allow": [{"who": {"emails": ["secret@example.com"]}}]});
        made("/v1/policies", json!({"name": "secret-policy", "document": document})).await;
        let provider = json!({"name": "secret-provider", "kind": "oidc", "issuer": "https://id.example.com",
            "client_id": "x", "client_secret": "y"});
        made("/v1/providers", provider).await;
        made("/v1/providers", json!({"name": "secret-accounts", "kind": "local"})).await;
        made("/v1/persons", json!({"email": "secret@example.com"})).await;
        made("/v1/networks", json!({"name": "secret"})).await;
        made("/v1/networks/secret/machines", json!({"name": "secret-machine"})).await;
        let set = json!({"document": POLICY});
        let set = api.send("PUT", "/v1/networks/secret/policy", Some(&owner), Some(set)).await;
        assert_eq!(set.status, StatusCode::OK, "{}", set.text);
        let service_token = text(&made("/v1/service-tokens", json!({"name": "secret-machine"})).await["id"]);
        let token = text(&made("/v1/tokens", json!({"name": "secret-token", "scopes": ["account:read"]})).await["id"]);
        let ssh_key = text(&made("/v1/ssh-keys", json!({"public_key": KEY})).await["id"]);
        let invitation = api.invite(&owner, &id, "secret-guest@example.com", "admin").await.details.id.to_string();
        let record = names_of(&api, id.parse().unwrap()).await;
        let login = LoginSession {
            id: LoginSessionId::from_random([5; 16]),
            organisation: id.parse().unwrap(),
            person: Person {
                provider: "secret-provider".parse().unwrap(),
                subject: "1".into(),
                email: "secret-person@example.com".parse().unwrap(),
                name: None,
                groups: Vec::new(),
                groups_stated: true,
            },
            authenticated_at: api.clock.unix_seconds(),
            expires_at: api.clock.unix_seconds() + 800,
        };
        api.store.begin_person_session(&login).await.unwrap();
        api.identities.put_session(login.clone());
        let name = socket.dns_name.split('.').next().unwrap().parse().unwrap();
        let of = (id.parse().unwrap(), socket.id, name, SocketType::Tcp);
        let client = "192.0.2.9:5000".parse().unwrap();
        let flow = api.flows.begin(LiveFlow::new("secret-flow".to_owned(), of, client, SystemTime::now()));
        let named = api.send("PATCH", "/v1/organisation", Some(&owner), Some(json!({"name": "Secret House"}))).await;
        assert_eq!(named.status, StatusCode::OK);
        let balancer = SiteBalancer {
            site: "secret".parse().unwrap(),
            addresses: vec!["198.51.100.9".parse().unwrap()],
            encapsulation: Encapsulation::Gue,
            balancers: vec!["192.0.2.9".parse().unwrap()],
            weights: BTreeMap::new(),
        };
        api.store.set_balancer(&balancer, &[], START).await.unwrap();
        let viewer = api.member(&owner, &id, "viewer@example.com", "viewer").await;
        let viewer_id = api.id_of(&viewer).await;
        let stranger = api.account("stranger@example.com").await;
        Self {
            owner,
            id,
            socket: socket.id.to_string(),
            tunnel,
            origin,
            policy: "secret-policy".into(),
            token,
            ssh_key,
            service_token,
            login_session: login.id.to_string(),
            invitation,
            record,
            viewer,
            viewer_id,
            stranger,
            _flow: flow,
            api,
        }
    }

    /// Every endpoint for accounts.
    fn endpoints(&self) -> Vec<Endpoint> {
        let description: Value = serde_json::from_str(&sallyport_control::openapi_json()).unwrap();
        let mut endpoints = Vec::new();
        for (path, operations) in description["paths"].as_object().unwrap() {
            for (method, operation) in operations.as_object().unwrap() {
                let id = operation["operationId"].as_str().unwrap().to_owned();
                if NOT_OF_ACCOUNTS.contains(&id.as_str()) {
                    continue;
                }
                let body = (!operation["requestBody"].is_null()).then(|| self.body(&id));
                let real = self.path(path);
                let names_something = *path != real;
                endpoints.push(Endpoint { id, method: method.to_uppercase(), path: real, body, names_something });
            }
        }
        assert!(endpoints.len() > 50, "{}", endpoints.len());
        for named in OF_PERSONS.iter().chain(&FOR_VIEWERS).chain(&NOT_SHOWN).chain(&OF_THE_INSTALLATION) {
            assert!(endpoints.iter().any(|endpoint| endpoint.id == *named), "{named} does not exist (any more)");
        }
        endpoints
    }

    /// The path with ids of the organisation.
    fn path(&self, path: &str) -> String {
        let noun = path.trim_start_matches("/v1/").split("/{id}").next().unwrap();
        let id = match noun {
            "sockets" => &self.socket,
            "policies" => &self.policy,
            "providers" => "secret-provider",
            "tokens" => &self.token,
            "ssh-keys" => &self.ssh_key,
            "service-tokens" => &self.service_token,
            "login-sessions" => &self.login_session,
            "invitations" | "account/invitations" => &self.invitation,
            // Strangers do not learn whether the session exists.
            "account/sessions" => "0b7e3c1a-5f0e-4c57-9f63-6a1f0f9e2d12",
            "members" => &self.viewer_id,
            "flows" => "secret-flow",
            "persons" => "secret@example.com",
            "certificates" => "secret.example.org",
            "zones/{name}/records" => &self.record,
            // Strangers do not learn whether the edge exists.
            "edges" | "anycast/prefixes" | "anycast/peers" | "anycast/orders" => "0b7e3c1a-5f0e-4c57-9f63-6a1f0f9e2d11",
            "egress/addresses" => "198.51.100.200",
            "egress/slices" => "198.51.100.200-3",
            "edge-tokens" => "0f1e2d3c4b5a6978",
            other if path.contains("{id}") => panic!("what is {{id}} of {other}? name it here"),
            _ => "",
        };
        path.replace("{id}", id)
            .replace("{tunnel_id}", &self.tunnel)
            .replace("{origin_id}", &self.origin)
            .replace("{name}", "secret.example.org")
            .replace("{site}", "secret")
            .replace("{network}", "secret")
            .replace("{machine}", "secret-machine")
    }

    /// A body that would be accepted from a permitted caller.
    fn body(&self, operation: &str) -> Value {
        match operation {
            "change_account_password" => json!({"current_password": PASSWORD, "new_password": "another horse battery"}),
            "begin_account_totp" => json!({"current_password": PASSWORD}),
            "confirm_account_totp" => json!({"enrolment": "x", "code": "123456"}),
            "disable_account_totp" | "renew_account_recovery_codes" => {
                json!({"current_password": PASSWORD, "code": "123456"})
            }
            "reset_account" => json!({"email": "ann@example.com"}),
            "create_token" => json!({"name": "x", "scopes": ["sockets:read"]}),
            "create_socket" | "update_socket" | "update_organisation" => json!({"name": "x"}),
            "create_tunnel" | "update_provider" | "update_ssh_authority" | "preview_socket_plan" => json!({}),
            "update_tunnel" | "update_direct_origin" => json!({"weight": 7}),
            "create_direct_origin" => json!({"address": "10.0.0.8:80"}),
            "sign_ssh_key_for_tunnel" | "create_ssh_key" | "sign_ssh_host_key" => json!({"public_key": KEY}),
            "create_policy" => json!({"name": "x", "document": {"allow": [{"who": {"anyone": true}}]}}),
            "update_policy" => json!({"name": "renamed"}),
            "attach_policy" | "detach_policy" => json!({"socket": self.socket}),
            "test_policy" => json!({"policy": self.policy, "email": "a@example.com"}),
            "create_provider" => {
                let issuer = "https://id.example.com";
                json!({"name": "x", "kind": "oidc", "issuer": issuer, "client_id": "x", "client_secret": "y"})
            }
            "end_login_sessions" => json!({"all": true}),
            "create_service_token" => json!({"name": "x"}),
            "create_service_token_certificate" => json!({"csr": "x"}),
            "create_person" => json!({"email": "x@example.com"}),
            "update_person" => json!({"name": "x"}),
            "reset_person" | "create_edge_token" | "drain_edge" => json!({}),
            "measure_way" => json!({"to": "192.0.2.1"}),
            "set_anycast_dials" => json!({"dials": {"eu": {"dial": 50}}}),
            "create_anycast_prefix" => json!({"prefix": "198.51.100.0/24"}),
            "create_anycast_peer" => {
                json!({"name": "a", "address": "192.0.2.1", "remote_as": 64_500, "local_as": 64_501})
            }
            "create_anycast_order" => json!({"place": "everywhere", "kind": "drain"}),
            "create_egress_address" => json!({"address": "198.51.100.7"}),
            "create_egress_slice" => json!({"address": "198.51.100.7", "edge": "edge"}),
            "move_egress_slice" => json!({"edge": "edge"}),
            "create_network" | "create_machine" => json!({"name": "x"}),
            "set_network_policy" => json!({"document": POLICY}),
            "set_balancer" => json!({"addresses": ["198.51.100.1"], "balancers": ["192.0.2.1"]}),
            "start_measurement" => json!({"address": "198.51.100.1"}),
            "import_catchment" => json!({"targets": ["192.0.2.1"]}),
            "hand_installation_over" => json!({"email": "stranger@example.com"}),
            "update_member" => json!({"role": "owner"}),
            "create_invitation" => json!({"email": "x@example.com", "role": "viewer"}),
            "create_domain" | "create_zone" => json!({"name": "x.example.org"}),
            "create_zone_record" => json!({"name": "x", "type": "TXT", "value": "x"}),
            "import_certificate" => json!({"chain": "x", "key": "y"}),
            "accept_invitation" => json!({"code": "spi_x"}),
            other => panic!("what is a body of {other}? name it here"),
        }
    }

    /// Everything that can be read of the organisation.
    async fn whole(&self) -> Vec<String> {
        let mut whole = Vec::new();
        let lists = self.endpoints().into_iter().filter(|endpoint| endpoint.method == "GET");
        for endpoint in lists.filter(|endpoint| !NOT_COMPARED.contains(&&*endpoint.id)) {
            let response = self.api.get(&endpoint.path, Some(&self.owner)).await;
            // A viewer's token is only in the viewer's list, and an invitation only in its recipient's.
            assert_eq!(response.status, StatusCode::OK, "{}: {}", endpoint.path, response.text);
            whole.push(response.text);
        }
        whole
    }

    async fn token_of(&self, whose: &str) -> String {
        let all: Vec<_> = sallyport_model::Scope::ALL.iter().map(|scope| scope.as_str()).collect();
        let body = json!({"name": "all", "scopes": all});
        let made: CreatedToken = self.api.post("/v1/tokens", Some(whose), body).await.read(StatusCode::CREATED);
        made.token.expose().to_owned()
    }
}

#[tokio::test]
async fn strangers_reach_nothing_of_an_organisation() {
    let full = FullOrganisation::build().await;
    let before = full.whole().await;
    let of_stranger = full.token_of(&full.stranger).await;
    for Endpoint { id, method, path, body, names_something } in full.endpoints() {
        // By name or id, the organisation does not exist.
        for organisation in [full.id.as_str(), "Secret House"] {
            let asked = full.api.send_for(&method, &path, &full.stranger, organisation, body.clone()).await;
            assert_eq!(asked.status, StatusCode::NOT_FOUND, "{id} {method} {path}: {}", asked.text);
            asked.assert_problem(StatusCode::NOT_FOUND, "no-such-organisation");
            let asked = full.api.send_for(&method, &path, &of_stranger, organisation, body.clone()).await;
            assert_eq!(asked.status, StatusCode::FORBIDDEN, "{id} {method} {path}: {}", asked.text);
            asked.assert_problem(StatusCode::FORBIDDEN, "wrong-organisation");
        }
        // By ids and names, its things do not exist.
        if OF_THE_INSTALLATION.contains(&&*id) {
            let asked = full.api.send(&method, &path, Some(&full.stranger), body.clone()).await;
            asked.assert_problem(StatusCode::FORBIDDEN, "not-owner");
        } else if names_something {
            let asked = full.api.send(&method, &path, Some(&full.stranger), body.clone()).await;
            assert_eq!(asked.status, StatusCode::NOT_FOUND, "{id} {method} {path}: {}", asked.text);
        } else if method == "GET" {
            let asked = full.api.get(&path, Some(&full.stranger)).await;
            assert!(asked.status.is_success(), "{id}: {}", asked.text);
            for secret in ["secret", &full.socket, &full.tunnel, &full.id] {
                // The log has the request with the words of its caller.
                let is_shown = asked.text.contains(secret) && id != "list_audit_events";
                assert!(!is_shown, "{id} tells {secret}: {}", asked.text);
            }
        }
    }
    // Nor in bodies.
    for (path, body) in [
        ("/v1/sockets", json!({"name": "x", "policies": ["secret-policy"]})),
        (
            "/v1/sockets",
            json!({"name": "x", "identity": {"providers": ["secret-provider"], "email_domains": ["a.example"]}}),
        ),
        ("/v1/service-tokens", json!({"name": "y", "sockets": [full.socket]})),
        ("/v1/policy-test", json!({"policy": "secret-policy", "email": "a@example.com"})),
        ("/v1/policy-test", json!({"socket": full.socket, "email": "a@example.com"})),
    ] {
        let asked = full.api.post(path, Some(&full.stranger), body.clone()).await;
        // An unknown provider may be named; it is looked up in the own organisation.
        if body["identity"].is_null() {
            assert!(asked.status.is_client_error(), "{path} {body}: {}", asked.text);
        }
        assert!(!asked.text.contains("secret-person") && !asked.text.contains("id.example.com"), "{}", asked.text);
    }
    let own = json!({"name": "mine", "document": {"allow": [{"who": {"anyone": true}}]}});
    assert_eq!(full.api.post("/v1/policies", Some(&full.stranger), own).await.status, StatusCode::CREATED);
    let place = json!({"socket": full.socket});
    let asked = full.api.post("/v1/policies/mine/attach", Some(&full.stranger), place).await;
    assert!(asked.status.is_client_error(), "{}", asked.text);
    assert_eq!(full.whole().await, before, "something changed");
}

#[tokio::test]
async fn whoever_may_only_look_changes_nothing() {
    let full = FullOrganisation::build().await;
    let viewers_token = {
        let all = ["sockets:read", "identity:read", "account:read", "account:write", "organisation:read"];
        let body = json!({"name": "v", "scopes": all});
        let made = full.api.send_for("POST", "/v1/tokens", &full.viewer, &full.id, Some(body)).await;
        made.read::<CreatedToken>(StatusCode::CREATED).token.expose().to_owned()
    };
    let before = full.whole().await;
    for Endpoint { id, method, path, body, .. } in full.endpoints() {
        let id = id.as_str();
        if id == "leave_organisation" {
            continue;
        }
        for token in [&full.viewer, &viewers_token] {
            let asked = full.api.send_for(&method, &path, token, &full.id, body.clone()).await;
            let described = format!("{id} {method} {path}: {}", asked.text);
            let code = asked.json_code();
            match (asked.status, code.as_str()) {
                (StatusCode::FORBIDDEN, "own-organisation-only") => {
                    assert!(OF_PERSONS.contains(&id) || OF_THE_INSTALLATION.contains(&id), "{described}");
                }
                (StatusCode::FORBIDDEN, "missing-role") => {
                    let shown = method == "GET" && !NOT_SHOWN.contains(&id);
                    assert!(!shown && !FOR_VIEWERS.contains(&id) && !OF_PERSONS.contains(&id), "{described}");
                }
                (StatusCode::OK, _) => {
                    let allowed = method == "GET" && !NOT_SHOWN.contains(&id);
                    assert!(allowed || FOR_VIEWERS.contains(&id), "{described}");
                }
                (StatusCode::CREATED, _) => assert_eq!(id, "create_token", "{described}"),
                // The owner's tokens and keys belong to no other account.
                (StatusCode::NOT_FOUND, "not-found") => assert_eq!(id, "delete_token", "{described}"),
                // The socket has no limits.
                (StatusCode::NOT_FOUND, "no-plan") => assert!(id.ends_with("_socket_plan"), "{described}"),
                _ => panic!("{described}"),
            }
        }
    }
    assert_eq!(full.whole().await, before, "something changed");
}

#[tokio::test]
async fn each_role_is_refused_what_its_token_allows_and_the_role_does_not() {
    let full = FullOrganisation::build().await;
    let member = full.api.member(&full.owner, &full.id, "member@example.com", "member").await;
    let admin = full.api.member(&full.owner, &full.id, "admin@example.com", "admin").await;
    let asked = |token: String, method: &'static str, path: String, body: Value| {
        let (api, id) = (&full.api, full.id.clone());
        async move { api.send_for(method, &path, &token, &id, Some(body)).await.status }
    };
    let socket = format!("/v1/sockets/{}", full.socket);
    let cases = [
        ("PATCH", socket.clone(), json!({"name": "x"}), [false, true, true]),
        ("POST", format!("{socket}/tunnels"), json!({}), [false, true, true]),
        ("PATCH", socket, json!({"identity": {"email_domains": ["a.example"]}}), [false, false, true]),
        ("POST", "/v1/service-tokens".to_owned(), json!({"name": "by-admin"}), [false, false, true]),
        ("PATCH", "/v1/ssh-authority".to_owned(), json!({}), [false, false, true]),
        ("POST", "/v1/login-sessions/end".to_owned(), json!({"all": true}), [false, false, true]),
        ("GET", "/v1/audit".to_owned(), json!({}), [false, false, true]),
        ("GET", "/v1/flows".to_owned(), json!({}), [false, false, true]),
        ("PATCH", format!("/v1/members/{}", full.viewer_id), json!({"role": "viewer"}), [false, false, true]),
        ("GET", "/v1/persons".to_owned(), json!({}), [false, false, true]),
        ("DELETE", "/v1/networks/secret/machines/secret-machine".to_owned(), json!({}), [false, false, true]),
        ("GET", "/v1/members".to_owned(), json!({}), [true, true, true]),
        ("GET", "/v1/policies".to_owned(), json!({}), [true, true, true]),
    ];
    for (method, path, body, may) in cases {
        for (token, may) in [&full.viewer, &member, &admin].into_iter().zip(may) {
            let status = asked(token.clone(), method, path.clone(), body.clone()).await;
            assert_eq!(status.is_success(), may, "{method} {path}: {status}");
            assert!(may || status == StatusCode::FORBIDDEN, "{method} {path}: {status}");
        }
    }
}
