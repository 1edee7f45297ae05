//! The handlers of `/v1`, one file for each noun: the authorization, the content of the request, and the content of the
//! response.
//!
//! May use: `device`, `service`, `request`, and what those may use.

mod account_access;
mod accounts;
mod anycast;
mod audit;
mod balancers;
mod catchment;
mod certificates;
mod dns_steering;
mod domains;
mod edges;
mod egress;
mod flow_log;
mod flows;
mod info;
mod invitations;
mod landings;
mod login_sessions;
mod logins;
mod members;
mod networks;
mod openapi;
mod organisations;
mod origins;
mod params;
mod persons;
mod plans;
mod policies;
mod providers;
mod service_tokens;
mod sockets;
mod ssh_authorities;
mod ssh_keys;
mod stats;
mod tokens;
mod tunnels;
mod ways;
mod zones;

use axum::{
    Router,
    routing::{delete, get, patch, post, put},
};

use crate::state::App;

pub use openapi::{openapi, openapi_json};

/// The paths of `/v1`.
pub(crate) fn routes() -> Router<App> {
    Router::new()
        .route("/openapi.json", get(info::openapi))
        .route("/v1/info", get(info::get))
        .route("/v1/accounts", post(accounts::create))
        .route("/v1/accounts/forgot", post(account_access::forgot))
        .route("/v1/accounts/reset", post(account_access::reset))
        .route("/v1/accounts/password", post(account_access::set_password))
        .route("/v1/account/password", post(account_access::change_password))
        .route("/v1/account/totp", post(account_access::begin_totp))
        .route("/v1/account/totp/confirm", post(account_access::confirm_totp))
        .route("/v1/account/totp/disable", post(account_access::disable_totp))
        .route("/v1/account/totp/codes", post(account_access::renew_codes))
        .route("/v1/account/sessions", get(account_access::list_sessions))
        .route("/v1/account/sessions/end-others", post(account_access::end_others))
        .route("/v1/account/sessions/{id}", delete(account_access::end_session))
        .route("/v1/account", get(accounts::get).delete(accounts::delete))
        .route("/v1/login", post(logins::login))
        .route("/v1/login/refresh", post(logins::refresh))
        .route("/v1/logout", post(logins::logout))
        .route("/v1/tokens", get(tokens::list).post(tokens::create))
        .route("/v1/tokens/{id}", delete(tokens::delete))
        .route("/v1/organisations", get(organisations::list))
        .route("/v1/organisation", get(organisations::get).patch(organisations::update))
        .route("/v1/organisation/leave", post(organisations::leave))
        .route("/v1/members", get(members::list))
        .route("/v1/members/{id}", patch(members::update).delete(members::delete))
        .route("/v1/invitations", get(invitations::list).post(invitations::create))
        .route("/v1/invitations/{id}", delete(invitations::delete))
        .route("/v1/account/invitations", get(invitations::list_received))
        .route("/v1/account/invitations/accept", post(invitations::accept))
        .route("/v1/account/invitations/{id}", delete(invitations::decline))
        .route("/v1/sockets", get(sockets::list).post(sockets::create))
        .route("/v1/sockets/{id}", get(sockets::get).patch(sockets::update).delete(sockets::delete))
        .route("/v1/sockets/{id}/origins", get(origins::list).post(origins::create))
        .route("/v1/sockets/{id}/origins/{origin_id}", get(origins::get).patch(origins::update).delete(origins::delete))
        .route("/v1/sockets/{id}/stats", get(stats::get))
        .route("/v1/sockets/{id}/plan", get(plans::get).post(plans::preview))
        .route("/v1/sockets/{id}/tunnels", get(tunnels::list).post(tunnels::create))
        .route("/v1/sockets/{id}/tunnels/{tunnel_id}", get(tunnels::get).patch(tunnels::update).delete(tunnels::delete))
        .route("/v1/sockets/{id}/tunnels/{tunnel_id}/credential", post(tunnels::rotate))
        .route("/v1/sockets/{id}/tunnels/{tunnel_id}/ssh-certificate", post(tunnels::sign_key))
        .route("/v1/ssh-keys", get(ssh_keys::list).post(ssh_keys::create))
        .route("/v1/ssh-keys/{id}", delete(ssh_keys::delete))
        .route("/v1/domains", get(domains::list).post(domains::create))
        .route("/v1/domains/{name}", get(domains::get).delete(domains::delete))
        .route("/v1/domains/{name}/check", post(domains::check))
        .route("/v1/certificates", get(certificates::list).post(certificates::import))
        .route("/v1/certificates/{id}", get(certificates::get).delete(certificates::delete))
        .route("/v1/certificates/{id}/renew", post(certificates::renew))
        .route("/v1/zones", get(zones::list).post(zones::create))
        .route("/v1/zones/{name}", get(zones::get).delete(zones::delete))
        .route("/v1/zones/{name}/rollover", post(zones::rollover))
        .route("/v1/zones/{name}/records", get(zones::list_records).post(zones::create_record))
        .route("/v1/zones/{name}/records/{id}", delete(zones::delete_record))
        .route("/v1/networks", get(networks::list).post(networks::create))
        .route("/v1/networks/{network}", get(networks::get).delete(networks::delete))
        .route(
            "/v1/networks/{network}/policy",
            get(networks::get_policy).put(networks::set_policy).delete(networks::delete_policy),
        )
        .route("/v1/networks/{network}/machines", get(networks::list_machines).post(networks::create_machine))
        .route("/v1/networks/{network}/machines/{machine}", get(networks::get_machine).delete(networks::delete_machine))
        .route("/v1/policies", get(policies::list).post(policies::create))
        .route("/v1/policies/{id}", get(policies::get).patch(policies::update).delete(policies::delete))
        .route("/v1/policies/{id}/attach", post(policies::attach))
        .route("/v1/policies/{id}/detach", post(policies::detach))
        .route("/v1/policy-test", post(policies::test))
        .route("/v1/providers", get(providers::list).post(providers::create))
        .route("/v1/providers/{id}", get(providers::get).patch(providers::update).delete(providers::delete))
        .route("/v1/providers/{id}/test", post(providers::test))
        .route("/v1/persons", get(persons::list).post(persons::create))
        .route("/v1/persons/{id}", get(persons::get).patch(persons::update).delete(persons::delete))
        .route("/v1/persons/{id}/reset", post(persons::reset))
        .route("/v1/login-sessions", get(login_sessions::list))
        .route("/v1/login-sessions/end", post(login_sessions::end))
        .route("/v1/login-sessions/{id}", delete(login_sessions::delete))
        .route("/v1/sockets/{id}/ssh-host-certificate", post(ssh_authorities::sign_host_key))
        .route("/v1/ssh-authority", get(ssh_authorities::show).patch(ssh_authorities::update))
        .route("/v1/service-tokens", get(service_tokens::list).post(service_tokens::create))
        .route("/v1/service-tokens/{id}", get(service_tokens::get).delete(service_tokens::delete))
        .route("/v1/service-tokens/{id}/certificate", post(service_tokens::certificate))
        .route("/v1/audit", get(audit::list))
        .route("/v1/audit/verify", get(audit::verify))
        .route("/v1/anycast/prefixes", get(anycast::list_prefixes).post(anycast::create_prefix))
        .route("/v1/anycast/prefixes/{id}", delete(anycast::delete_prefix))
        .route("/v1/anycast/peers", get(anycast::list_peers).post(anycast::create_peer))
        .route("/v1/anycast/peers/{id}", delete(anycast::delete_peer))
        .route("/v1/anycast/orders", get(anycast::list_orders).post(anycast::create_order))
        .route("/v1/anycast/orders/{id}", delete(anycast::delete_order))
        .route("/v1/anycast/dials", get(dns_steering::get).put(dns_steering::set))
        .route("/v1/anycast/resolve", get(dns_steering::resolve))
        .route("/v1/anycast/status", get(anycast::status))
        .route("/v1/anycast/preview", get(anycast::preview))
        .route("/v1/anycast/explain", get(anycast::explain))
        .route("/geofeed.csv", get(egress::geofeed))
        .route("/v1/egress/addresses", get(egress::list_addresses).post(egress::create_address))
        .route("/v1/egress/addresses/{id}", delete(egress::delete_address))
        .route("/v1/egress/slices", get(egress::list_slices).post(egress::create_slice))
        .route("/v1/egress/slices/{id}", delete(egress::delete_slice))
        .route("/v1/egress/slices/{id}/move", post(egress::move_slice))
        .route("/v1/balancers", get(balancers::list))
        .route("/v1/balancers/{site}", get(balancers::get).put(balancers::set).delete(balancers::delete))
        .route("/v1/edges", get(edges::list))
        .route("/v1/edges/clients", get(catchment::list))
        .route("/v1/catchment", get(landings::list))
        .route("/v1/catchment/suggestion", get(landings::suggest))
        .route("/v1/catchment/measurements", get(landings::measurements).post(landings::measure))
        .route("/v1/catchment/imports", post(landings::import))
        .route("/v1/edges/ways", get(ways::list).post(ways::measure))
        .route("/v1/edges/{id}", delete(edges::delete))
        .route("/v1/edges/{id}/drain", post(edges::drain))
        .route("/v1/edges/{id}/resume", post(edges::resume))
        .route("/v1/edge-tokens", get(edges::list_tokens).post(edges::create_token))
        .route("/v1/edge-tokens/{id}", delete(edges::delete_token))
        .route("/v1/installation/owner", put(edges::hand_over))
        .route("/v1/flows", get(flows::list))
        .route("/v1/flows/log", get(flow_log::list))
        .route("/v1/flows/{id}", delete(flows::kill))
}
