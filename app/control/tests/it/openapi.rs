//! The committed description of the API is current.

use std::collections::BTreeSet;

use http::StatusCode;

use crate::harness::Api;

#[test]
fn the_committed_description_is_up_to_date() {
    let committed = include_str!("../../../../api/openapi.json");
    let generated = sallyport_control::openapi_json();
    assert!(committed == generated, "api/openapi.json is out of date: run `cargo xtask openapi`");
}

#[test]
fn every_operation_is_described_once() {
    let json: serde_json::Value = serde_json::from_str(&sallyport_control::openapi_json()).unwrap();
    assert!(json["openapi"].as_str().unwrap().starts_with("3.1"));
    let mut ids = BTreeSet::new();
    for (path, operations) in json["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            let id = operation["operationId"].as_str().unwrap();
            assert!(ids.insert(id.to_owned()), "{id} twice");
            assert!(operation["responses"]["default"].is_object(), "{method} {path} describes no errors");
        }
    }
    assert!(ids.len() >= 34, "{}", ids.len());
    let text = json.to_string();
    for reference in text.split("\"#/components/schemas/").skip(1) {
        let name = reference.split('"').next().unwrap();
        assert!(json["components"]["schemas"][name].is_object(), "the schema {name} is missing");
    }
}

#[tokio::test]
async fn it_is_served() {
    let api = Api::start().await;
    let response = api.get("/openapi.json", None).await;
    assert_eq!(response.status, StatusCode::OK);
    assert_eq!(response.text, sallyport_control::openapi_json());
}

/// Every described path exists: without a token it answers, or requires one.
#[tokio::test]
async fn every_described_path_is_served() {
    let api = Api::start().await;
    let json: serde_json::Value = serde_json::from_str(&sallyport_control::openapi_json()).unwrap();
    for (path, operations) in json["paths"].as_object().unwrap() {
        for method in operations.as_object().unwrap().keys() {
            let concrete = path.replace("{id}", "calm-bay-1000").replace("{tunnel_id}", "x");
            let response = api.send(&method.to_uppercase(), &concrete, None, None).await;
            let open = [
                "/v1/info",
                "/v1/accounts",
                "/v1/accounts/forgot",
                "/v1/accounts/password",
                "/v1/login",
                "/v1/login/refresh",
                "/v1/logout",
                "/v1/client/token",
                "/v1/client/device",
                "/v1/client/device/token",
            ];
            if open.contains(&path.as_str()) {
                assert!(
                    [StatusCode::OK, StatusCode::UNPROCESSABLE_ENTITY].contains(&response.status),
                    "{method} {path}"
                );
            } else {
                response.assert_problem(StatusCode::UNAUTHORIZED, "not-logged-in");
            }
        }
    }
}

/// A request without its required body changes nothing.
#[tokio::test]
async fn a_missing_body_is_refused() {
    let api = Api::start().await;
    let token = api.account("ann@example.com").await;
    let json: serde_json::Value = serde_json::from_str(&sallyport_control::openapi_json()).unwrap();
    let mut asked = BTreeSet::new();
    for (path, operations) in json["paths"].as_object().unwrap() {
        let operations = operations.as_object().unwrap().iter();
        for (method, _) in operations.filter(|(_, operation)| operation["requestBody"]["required"] == true) {
            let concrete =
                path.replace("{id}", "calm-bay-1000").replace("{tunnel_id}", "x").replace("{origin_id}", "x");
            let response = api.send(&method.to_uppercase(), &concrete, Some(&token), None).await;
            assert!(response.status.is_client_error(), "{method} {path} takes no body for one: {}", response.text);
            if response.text.contains("the body is missing") {
                response.assert_problem(StatusCode::UNPROCESSABLE_ENTITY, "invalid-request");
                asked.insert(format!("{method} {path}"));
            }
        }
    }
    for one in ["patch /v1/ssh-authority", "patch /v1/policies/{id}", "patch /v1/sockets/{id}", "post /v1/tokens"] {
        assert!(asked.contains(one), "{one} is not among {asked:?}");
    }
    assert!(asked.len() >= 25, "{asked:?}");
}
