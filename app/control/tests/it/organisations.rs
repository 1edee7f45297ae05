//! Organisations: members, roles, and isolation from others.

use axum::body::Body;
use http::{Request, StatusCode, header};
use sallyport_api::{CreatedInvitation, CreatedToken, Member, Organisation, Page, ReceivedInvitation};
use serde_json::{Value, json};

use crate::harness::{Api, HttpResponse};

impl Api {
    /// A request for an organisation.
    pub(crate) async fn send_for(
        &self,
        method: &str,
        path: &str,
        token: &str,
        organisation: &str,
        body: Option<Value>,
    ) -> HttpResponse {
        let mut request = Request::builder().method(method).uri(path);
        request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        request = request.header("Sallyport-Organisation", organisation.as_bytes());
        let body = match body {
            Some(body) => {
                request = request.header(header::CONTENT_TYPE, "application/json");
                Body::from(body.to_string())
            }
            None => Body::empty(),
        };
        self.raw(request.body(body).unwrap()).await
    }

    async fn get_for(&self, path: &str, token: &str, organisation: &str) -> HttpResponse {
        self.send_for("GET", path, token, organisation, None).await
    }

    /// The id of the account, and of its organisation.
    pub(crate) async fn id_of(&self, token: &str) -> String {
        self.get("/v1/account", Some(token)).await.json()["id"].as_str().unwrap().to_owned()
    }

    pub(crate) async fn invite(&self, token: &str, organisation: &str, email: &str, role: &str) -> CreatedInvitation {
        let body = json!({"email": email, "role": role});
        self.send_for("POST", "/v1/invitations", token, organisation, Some(body)).await.read(StatusCode::CREATED)
    }

    async fn accept(&self, token: &str, code: &str) -> HttpResponse {
        self.post("/v1/account/invitations/accept", Some(token), json!({ "code": code })).await
    }

    /// Makes an account in the organisation. Returns its access token.
    pub(crate) async fn member(&self, owner: &str, organisation: &str, email: &str, role: &str) -> String {
        let token = self.account(email).await;
        let invited = self.invite(owner, organisation, email, role).await;
        let joined: Organisation = self.accept(&token, invited.code.expose()).await.read(StatusCode::OK);
        assert_eq!((joined.id.to_string(), joined.role.as_str(), joined.own), (organisation.to_owned(), role, false));
        token
    }

    async fn members(&self, token: &str, organisation: &str) -> Vec<(String, String)> {
        let page = self.get_for("/v1/members", token, organisation).await.read::<Page<Member>>(StatusCode::OK);
        page.items.into_iter().map(|member| (member.email.to_string(), member.role.to_string())).collect()
    }

    async fn received(&self, token: &str) -> Vec<ReceivedInvitation> {
        let response = self.get("/v1/account/invitations", Some(token)).await;
        response.read::<Page<ReceivedInvitation>>(StatusCode::OK).items
    }
}

#[tokio::test]
async fn a_member_is_invited_accepts_works_and_is_removed() {
    let api = Api::start().await;
    let ann = api.account("ann@example.com").await;
    let organisation = api.id_of(&ann).await;
    let bob = api.account("bob@example.com").await;
    let invited = api.invite(&ann, &organisation, "Bob@EXAMPLE.com", "member").await;
    let code = invited.code.expose().to_owned();
    assert!(code.starts_with("spi_") && code.len() == 47, "{code}");
    assert!(!api.get("/v1/invitations", Some(&ann)).await.text.contains(&code));
    // An invitation alone does not make a member.
    api.get_for("/v1/sockets", &bob, &organisation).await.assert_problem(StatusCode::NOT_FOUND, "no-such-organisation");
    let received = api.received(&bob).await;
    assert_eq!(
        (received.len(), received[0].organisation.to_string(), received[0].role.as_str()),
        (1, organisation.clone(), "member")
    );
    let joined: Organisation = api.accept(&bob, &code).await.read(StatusCode::OK);
    assert_eq!((joined.name.as_str(), joined.role.as_str(), joined.own), ("Ann", "member", false));
    assert!(api.received(&bob).await.is_empty());
    api.accept(&bob, &code).await.assert_problem(StatusCode::NOT_FOUND, "not-found");
    let both = [("ann@example.com", "owner"), ("bob@example.com", "member")];
    assert_eq!(api.members(&bob, &organisation).await, both.map(|(email, role)| (email.to_owned(), role.to_owned())));

    // What he makes belongs to the organisation; his own things stay separate.
    let body = Some(json!({"name": "shop"}));
    let made: sallyport_api::Socket =
        api.send_for("POST", "/v1/sockets", &bob, &organisation, body).await.read(StatusCode::CREATED);
    assert_eq!(api.get(&format!("/v1/sockets/{}", made.id), Some(&ann)).await.status, StatusCode::OK);
    api.get(&format!("/v1/sockets/{}", made.id), Some(&bob)).await.assert_problem(StatusCode::NOT_FOUND, "not-found");

    // His token for the organisation needs no header, and refuses another one.
    let body = json!({"name": "ci", "scopes": ["sockets:write", "account:read"]});
    let token: CreatedToken =
        api.send_for("POST", "/v1/tokens", &bob, &organisation, Some(body)).await.read(StatusCode::CREATED);
    assert_eq!(token.details.organisation.to_string(), organisation);
    let ci = token.token.expose();
    let sockets: Page<sallyport_api::Socket> = api.get("/v1/sockets", Some(ci)).await.read(StatusCode::OK);
    assert_eq!(sockets.items.iter().map(|socket| socket.id).collect::<Vec<_>>(), [made.id]);
    for fits in [organisation.as_str(), "Ann"] {
        assert_eq!(api.get_for("/v1/sockets", ci, fits).await.status, StatusCode::OK, "{fits}");
    }
    let own = api.id_of(&bob).await;
    for other in [own.as_str(), "00000000-0000-4000-8000-000000000000", "nobody"] {
        api.get_for("/v1/sockets", ci, other).await.assert_problem(StatusCode::FORBIDDEN, "wrong-organisation");
    }
    let seen: Page<Organisation> = api.get("/v1/organisations", Some(ci)).await.read(StatusCode::OK);
    assert_eq!(
        seen.items.iter().map(|one| one.id.to_string()).collect::<Vec<_>>(),
        std::slice::from_ref(&organisation)
    );
    // Each organisation has its own list of his tokens.
    assert!(api.get("/v1/tokens", Some(&bob)).await.json()["items"].as_array().unwrap().is_empty());
    assert_eq!(api.get_for("/v1/tokens", &bob, &organisation).await.json()["items"].as_array().unwrap().len(), 1);

    assert_eq!(
        api.send("DELETE", "/v1/members/bob@example.com", Some(&ann), None).await.status,
        StatusCode::NO_CONTENT
    );
    api.get("/v1/sockets", Some(ci)).await.assert_problem(StatusCode::UNAUTHORIZED, "bad-token");
    api.get_for("/v1/sockets", &bob, &organisation).await.assert_problem(StatusCode::NOT_FOUND, "no-such-organisation");
    assert_eq!(api.get(&format!("/v1/sockets/{}", made.id), Some(&ann)).await.status, StatusCode::OK, "it stays");
    assert_eq!(api.get("/v1/sockets", Some(&bob)).await.status, StatusCode::OK, "his own organisation stays");
}

#[tokio::test]
async fn an_invitation_reveals_nothing_and_takes_the_code_the_address_and_its_time() {
    let api = Api::start().await;
    let ann = api.account("ann@example.com").await;
    let organisation = api.id_of(&ann).await;
    let bob = api.account("bob@example.com").await;
    let eve = api.account("eve@example.com").await;
    // The response does not reveal whether the account exists.
    let to = |email: &str| json!({"email": email, "role": "admin"});
    let known = api.post("/v1/invitations", Some(&ann), to("bob@example.com")).await;
    let unknown = api.post("/v1/invitations", Some(&ann), to("zoe@example.com")).await;
    let keys = |response: &HttpResponse| response.json().as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!((known.status, keys(&known)), (unknown.status, keys(&unknown)));
    let shown: Page<sallyport_api::Invitation> = api.get("/v1/invitations", Some(&ann)).await.read(StatusCode::OK);
    assert_eq!(
        shown.items.iter().map(|one| one.email.as_str()).collect::<Vec<_>>(),
        ["bob@example.com", "zoe@example.com"]
    );
    // A later account with the address still needs the code.
    let zoe = api.account("zoe@example.com").await;
    for wrong in ["", "spi_x", known.json()["id"].as_str().unwrap()] {
        api.accept(&zoe, wrong).await.assert_problem(StatusCode::NOT_FOUND, "not-found");
    }
    // The code alone does not suffice without the address.
    let code = known.json()["code"].as_str().unwrap().to_owned();
    api.accept(&eve, &code).await.assert_problem(StatusCode::NOT_FOUND, "not-found");
    let path = format!("/v1/account/invitations/{}", known.json()["id"].as_str().unwrap());
    api.send("DELETE", &path, Some(&eve), None).await.assert_problem(StatusCode::NOT_FOUND, "not-found");
    // A new invitation replaces the former one.
    let again = api.invite(&ann, &organisation, "bob@example.com", "viewer").await;
    api.accept(&bob, &code).await.assert_problem(StatusCode::NOT_FOUND, "not-found");
    assert_eq!(api.received(&bob).await.len(), 1);
    api.clock.pass(7 * 86_400);
    let bob = api.login("bob@example.com").await.access_token.expose().to_owned();
    let ann = api.login("ann@example.com").await.access_token.expose().to_owned();
    assert!(api.received(&bob).await.is_empty());
    api.accept(&bob, again.code.expose()).await.assert_problem(StatusCode::NOT_FOUND, "not-found");

    // One is declined, one is withdrawn.
    let declined = api.invite(&ann, &organisation, "bob@example.com", "viewer").await;
    let path = format!("/v1/account/invitations/{}", declined.details.id);
    assert_eq!(api.send("DELETE", &path, Some(&bob), None).await.status, StatusCode::NO_CONTENT);
    api.accept(&bob, declined.code.expose()).await.assert_problem(StatusCode::NOT_FOUND, "not-found");
    let withdrawn = api.invite(&ann, &organisation, "bob@example.com", "viewer").await;
    let path = format!("/v1/invitations/{}", withdrawn.details.id);
    assert_eq!(api.send("DELETE", &path, Some(&ann), None).await.status, StatusCode::NO_CONTENT);
    api.accept(&bob, withdrawn.code.expose()).await.assert_problem(StatusCode::NOT_FOUND, "not-found");
    assert_eq!(api.members(&ann, &organisation).await.len(), 1);
    for (body, field) in [
        (json!({"email": "bob", "role": "viewer"}), "email"),
        (json!({"email": "bob@example.com", "role": "root"}), "role"),
        (json!({"email": "bob@example.com"}), "role"),
    ] {
        let response = api.post("/v1/invitations", Some(&ann), body).await;
        response.assert_problem(StatusCode::UNPROCESSABLE_ENTITY, "invalid-request");
        assert_eq!(response.field(), field);
    }
    let response = api.post("/v1/invitations", Some(&ann), to("ann@example.com")).await;
    response.assert_problem(StatusCode::CONFLICT, "already-member");
}

#[tokio::test]
async fn a_role_changes_at_once_and_owners_are_for_owners() {
    let api = Api::start().await;
    let ann = api.account("ann@example.com").await;
    let organisation = api.id_of(&ann).await;
    let max = api.member(&ann, &organisation, "max@example.com", "admin").await;
    let kim = api.member(&ann, &organisation, "kim@example.com", "owner").await;
    let bob = api.member(&ann, &organisation, "bob@example.com", "member").await;
    let edit = |who: &'static str, token: String, role: &'static str| {
        let (api, organisation) = (&api, organisation.clone());
        async move {
            let path = format!("/v1/members/{who}");
            api.send_for("PATCH", &path, &token, &organisation, Some(json!({ "role": role }))).await
        }
    };
    // An admin cannot make or remove owners, or become one.
    for (who, role) in [("kim@example.com", "viewer"), ("bob@example.com", "owner"), ("max@example.com", "owner")] {
        edit(who, max.clone(), role).await.assert_problem(StatusCode::FORBIDDEN, "missing-role");
    }
    let body = Some(json!({"email": "new@example.com", "role": "owner"}));
    api.send_for("POST", "/v1/invitations", &max, &organisation, body)
        .await
        .assert_problem(StatusCode::FORBIDDEN, "missing-role");
    // Nor withdraw an invitation for an owner.
    let heir = api.invite(&ann, &organisation, "heir@example.com", "owner").await;
    let body = Some(json!({"email": "Heir@example.com", "role": "viewer"}));
    api.send_for("POST", "/v1/invitations", &max, &organisation, body)
        .await
        .assert_problem(StatusCode::FORBIDDEN, "missing-role");
    let heirs = format!("/v1/invitations/{}", heir.details.id);
    api.send_for("DELETE", &heirs, &max, &organisation, None)
        .await
        .assert_problem(StatusCode::FORBIDDEN, "missing-role");
    assert_eq!(api.send_for("DELETE", &heirs, &kim, &organisation, None).await.status, StatusCode::NO_CONTENT);
    let kims = "/v1/members/kim@example.com";
    api.send_for("DELETE", kims, &max, &organisation, None).await.assert_problem(StatusCode::FORBIDDEN, "missing-role");
    // The founder stays an owner.
    for token in [&ann, &kim, &max] {
        let founder = edit("ann@example.com", token.clone(), "viewer").await;
        founder.assert_problem(StatusCode::CONFLICT, "founder");
        let founder = api.send_for("DELETE", "/v1/members/ann@example.com", token, &organisation, None).await;
        founder.assert_problem(StatusCode::CONFLICT, "founder");
    }
    api.post("/v1/organisation/leave", Some(&ann), json!({})).await.assert_problem(StatusCode::CONFLICT, "founder");

    // A changed role applies to the next request, for tokens too; invitations sent meanwhile end.
    let body = json!({"name": "t", "scopes": ["identity:write", "sockets:write"]});
    let token: CreatedToken =
        api.send_for("POST", "/v1/tokens", &max, &organisation, Some(body)).await.read(StatusCode::CREATED);
    let friend = api.account("friend@example.com").await;
    let invited = api.invite(&max, &organisation, "friend@example.com", "admin").await;
    let policy = json!({"name": "all", "document": {"allow": [{"who": {"anyone": true}}]}});
    assert_eq!(edit("max@example.com", kim.clone(), "member").await.status, StatusCode::OK);
    let refused = api.post("/v1/policies", Some(token.token.expose()), policy.clone()).await;
    assert!(refused.assert_problem(StatusCode::FORBIDDEN, "missing-role").contains("takes the role admin"));
    assert_eq!(api.get("/v1/sockets", Some(token.token.expose())).await.status, StatusCode::OK);
    let refused = api.send_for("POST", "/v1/policies", &max, &organisation, Some(policy)).await;
    refused.assert_problem(StatusCode::FORBIDDEN, "missing-role");
    api.accept(&friend, invited.code.expose()).await.assert_problem(StatusCode::NOT_FOUND, "not-found");
    // A token cannot have more than the role.
    let body = Some(json!({"name": "t", "scopes": ["identity:write"]}));
    api.send_for("POST", "/v1/tokens", &bob, &organisation, body)
        .await
        .assert_problem(StatusCode::FORBIDDEN, "missing-scope");

    // One owner demotes another, and members may leave.
    assert_eq!(edit("kim@example.com", ann.clone(), "viewer").await.status, StatusCode::OK);
    edit("bob@example.com", kim.clone(), "admin").await.assert_problem(StatusCode::FORBIDDEN, "missing-role");
    let left = api.send_for("POST", "/v1/organisation/leave", &kim, &organisation, None).await;
    assert_eq!(left.status, StatusCode::NO_CONTENT);
    api.get_for("/v1/members", &kim, &organisation).await.assert_problem(StatusCode::NOT_FOUND, "no-such-organisation");
    // An account with others in its organisation is not deleted.
    api.send("DELETE", "/v1/account", Some(&ann), None).await.assert_problem(StatusCode::CONFLICT, "has-members");
    for who in ["max", "bob"] {
        let path = format!("/v1/members/{who}@example.com");
        assert_eq!(api.send("DELETE", &path, Some(&ann), None).await.status, StatusCode::NO_CONTENT);
    }
    assert_eq!(api.send("DELETE", "/v1/account", Some(&ann), None).await.status, StatusCode::NO_CONTENT);
    api.get_for("/v1/sockets", &bob, &organisation).await.assert_problem(StatusCode::NOT_FOUND, "no-such-organisation");
}

#[tokio::test]
async fn an_organisation_is_named_by_its_id_or_its_name() {
    let api = Api::start().await;
    let ann = api.account("ann@example.com").await;
    let organisation = api.id_of(&ann).await;
    let bob = api.member(&ann, &organisation, "bob@example.com", "member").await;
    let max = api.member(&ann, &organisation, "max@example.com", "admin").await;
    // Both accounts and both organisations are called Ann.
    api.get_for("/v1/sockets", &bob, "Ann").await.assert_problem(StatusCode::CONFLICT, "ambiguous-organisation");
    let rename = |token: String, name: &'static str| {
        let (api, organisation) = (&api, organisation.clone());
        let body = json!({ "name": name });
        async move { api.send_for("PATCH", "/v1/organisation", &token, &organisation, Some(body)).await }
    };
    rename(bob.clone(), "Bob's").await.assert_problem(StatusCode::FORBIDDEN, "missing-role");
    let named: Organisation = rename(max.clone(), "Zürich Ltd").await.read(StatusCode::OK);
    assert_eq!((named.name.as_str(), named.role.as_str()), ("Zürich Ltd", "admin"));
    assert_eq!(api.get_for("/v1/organisation", &bob, "Zürich Ltd").await.json()["id"], json!(organisation));
    assert_eq!(api.get("/v1/account", Some(&ann)).await.json()["name"], "Ann", "the account keeps its name");
    let all: Page<Organisation> = api.get("/v1/organisations", Some(&bob)).await.read(StatusCode::OK);
    let all: Vec<_> = all.items.iter().map(|one| (one.name.as_str(), one.role.as_str(), one.own)).collect();
    assert_eq!(all, [("Ann", "owner", true), ("Zürich Ltd", "member", false)]);
    let refused = rename(max, " ").await;
    refused.assert_problem(StatusCode::UNPROCESSABLE_ENTITY, "invalid-request");
    assert_eq!(refused.field(), "name");
    for bad in ["", " ", &"x".repeat(401)] {
        api.get_for("/v1/sockets", &bob, bad).await.assert_problem(StatusCode::BAD_REQUEST, "bad-organisation");
    }
    // Missing things and things of others look the same.
    let eve = api.account("eve@example.com").await;
    let sentences = [organisation.as_str(), "Zürich Ltd", "nothing", "00000000-0000-4000-8000-000000000000"];
    let mut distinct = std::collections::BTreeSet::new();
    for name in sentences {
        let refused = api.get_for("/v1/sockets", &eve, name).await;
        let sentence = refused.assert_problem(StatusCode::NOT_FOUND, "no-such-organisation");
        assert!(sentence.ends_with(name), "{sentence}");
        distinct.insert(sentence.replace(name, ""));
    }
    assert_eq!(distinct.len(), 1, "{distinct:?}");
}

#[tokio::test]
async fn what_members_do_stands_in_the_log_of_the_organisation() {
    let api = Api::start().await;
    let ann = api.account("ann@example.com").await;
    let organisation = api.id_of(&ann).await;
    let bob = api.member(&ann, &organisation, "bob@example.com", "member").await;
    let bobs = api.id_of(&bob).await;
    api.send_for("POST", "/v1/sockets", &bob, &organisation, Some(json!({"name": "s"}))).await;
    api.send_for("POST", "/v1/policies", &bob, &organisation, Some(json!({"name": "p", "document": {}}))).await;
    let body = Some(json!({"role": "viewer"}));
    api.send_for("PATCH", "/v1/members/bob@example.com", &ann, &organisation, body).await;
    api.send_for("DELETE", "/v1/members/bob@example.com", &ann, &organisation, None).await;
    // Attempts of strangers are not in its log.
    api.send_for("POST", "/v1/sockets", &bob, &organisation, Some(json!({"name": "s"}))).await;
    api.audit.flush().unwrap();
    let events = api.get("/v1/audit?order=oldest&kind=admin&limit=100", Some(&ann)).await.json();
    let events: Vec<_> = events["items"].as_array().unwrap().iter().map(|event| event["admin"].clone()).collect();
    let recorded: Vec<_> = events
        .iter()
        .map(|event| ["actor", "action", "outcome"].map(|field| event[field].as_str().unwrap().to_owned()).join(" "))
        .collect();
    assert_eq!(
        recorded,
        [
            "ann@example.com account.create done",
            "ann@example.com invitation.create done",
            "bob@example.com invitation.accept done",
            "bob@example.com socket.create done",
            "bob@example.com policy.create refused",
            "ann@example.com member.edit done",
            "ann@example.com member.delete done",
        ]
    );
    assert_eq!(events[3]["account"], json!(bobs));
    assert_eq!(events[5]["target"], "bob@example.com as viewer");
}

#[tokio::test]
async fn tokens_that_are_not_taken_leave_events_and_not_many() {
    let api = Api::start().await;
    let ann = api.account("ann@example.com").await;
    let body = json!({"name": "short", "scopes": ["sockets:read"], "expires_at": "2027-01-15T08:00:10Z"});
    let short: CreatedToken = api.post("/v1/tokens", Some(&ann), body).await.read(StatusCode::CREATED);
    api.clock.pass(10);
    api.get("/v1/sockets", Some(short.token.expose())).await.assert_problem(StatusCode::UNAUTHORIZED, "expired-token");
    for _ in 0..50 {
        api.get("/v1/sockets", Some("spt_nonsense")).await.assert_problem(StatusCode::UNAUTHORIZED, "bad-token");
    }
    api.client_at("198.51.100.7:1").send("GET", "/v1/sockets", Some("a.b.c"), None).await;
    api.audit.flush().unwrap();
    let log = std::fs::read_to_string(api.dir.path().join("audit/0000000001.jsonl")).unwrap();
    let refused: Vec<_> = log.lines().filter(|line| line.contains("\"token.refused\"")).collect();
    assert_eq!(refused.len(), 7, "six of one address, one of another: {refused:#?}");
    assert!(refused[0].contains("token:short") && refused[6].contains("198.51.100.7"), "{refused:#?}");
    // The organisation sees events of its own token.
    let seen = api.get("/v1/audit?kind=admin&limit=100", Some(&ann)).await.text;
    assert_eq!(seen.matches("\"token.refused\"").count(), 1, "{seen}");
}
