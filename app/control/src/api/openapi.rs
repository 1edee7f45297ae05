//! The description of the API, made from the handlers.

use std::collections::BTreeMap;

use sallyport_api::{PROBLEM_JSON, Problem, named_objects};
use utoipa::{
    IntoResponses, Modify, OpenApi,
    openapi::{
        Content, Ref, RefOr, Required, Response, ResponseBuilder, Responses, Schema,
        schema::ArrayItems,
        security::{HttpAuthScheme, HttpBuilder, SecurityScheme},
    },
};

use super::{
    account_access, accounts, anycast, audit, balancers, catchment, certificates, dns_steering, domains, edges, egress,
    flow_log, flows, info, invitations, landings, login_sessions, logins, members, networks, organisations, origins,
    persons, plans, policies, providers, service_tokens, sockets, ssh_authorities, ssh_keys, stats, tokens, tunnels,
    ways, zones,
};
use crate::device;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Sallyport",
        description = "Public addresses for private services. Errors are `application/problem+json` (RFC 9457). Lists \
                       come in pages. A creation with an `Idempotency-Key` can be repeated. A request is for the \
                       organisation of its token, or for the one that `Sallyport-Organisation` names by id or name.",
        license(name = "Apache-2.0", identifier = "Apache-2.0"),
    ),
    paths(
        info::get, accounts::create, accounts::get, accounts::delete, logins::login, logins::refresh, logins::logout,
        account_access::forgot, account_access::reset, account_access::set_password, account_access::change_password,
        account_access::begin_totp, account_access::confirm_totp, account_access::disable_totp,
        account_access::renew_codes,
        account_access::list_sessions, account_access::end_session, account_access::end_others,
        organisations::list, organisations::get, organisations::update, organisations::leave,
        members::list, members::update, members::delete,
        invitations::list, invitations::create, invitations::delete,
        invitations::list_received, invitations::accept, invitations::decline,
        tokens::list, tokens::create, tokens::delete, sockets::list, sockets::create, sockets::get, sockets::update,
        sockets::delete, tunnels::list, tunnels::create, tunnels::get, tunnels::update, tunnels::delete,
        tunnels::rotate, tunnels::sign_key,
        origins::list, origins::create, origins::get, origins::update, origins::delete, ssh_keys::list,
        ssh_keys::create, ssh_keys::delete,
        domains::list, domains::create, domains::get, domains::check, domains::delete,
        zones::list, zones::create, zones::get, zones::delete, zones::rollover, zones::list_records,
        zones::create_record, zones::delete_record,
        certificates::list, certificates::import, certificates::get, certificates::renew, certificates::delete,
        policies::list, policies::create, policies::get, policies::update, policies::delete, policies::attach,
        policies::detach, policies::test,
        providers::list, providers::create, providers::get, providers::update, providers::delete, providers::test,
        persons::list, persons::create, persons::get, persons::update, persons::delete, persons::reset,
        login_sessions::list, login_sessions::end, login_sessions::delete,
        device::show, device::end, device::exchange_code, device::begin_device, device::exchange_device,
        device::tls_certificate, device::ssh_certificate, ssh_authorities::sign_host_key, ssh_authorities::show,
        ssh_authorities::update,
        service_tokens::list, service_tokens::create, service_tokens::get, service_tokens::certificate,
        service_tokens::delete,
        audit::list, audit::verify, flows::list, flows::kill, flow_log::list, stats::get, plans::get, plans::preview,
        edges::list, edges::delete, edges::drain, edges::resume, edges::create_token, edges::list_tokens,
        edges::delete_token, edges::hand_over, ways::list, ways::measure,
        catchment::list,
        anycast::list_prefixes, anycast::create_prefix, anycast::delete_prefix, anycast::list_peers,
        anycast::create_peer, anycast::delete_peer, anycast::list_orders, anycast::create_order,
        dns_steering::get, dns_steering::set, dns_steering::resolve,
        anycast::delete_order, anycast::status, anycast::preview, anycast::explain,
        egress::list_addresses, egress::create_address, egress::delete_address, egress::list_slices,
        egress::create_slice, egress::move_slice, egress::delete_slice,
        balancers::list, balancers::get, balancers::set, balancers::delete,
        networks::list, networks::create, networks::get, networks::delete, networks::get_policy, networks::set_policy,
        networks::delete_policy, networks::list_machines, networks::create_machine, networks::get_machine,
        networks::delete_machine,
        landings::list, landings::suggest, landings::measure, landings::measurements, landings::import,
    ),
    components(schemas(Problem)),
    modifiers(&BearerToken, &BodyMayBeAbsent, &OneTypeOfEach, &ProblemResponses),
    security(("bearer" = [])),
    tags(
        (name = "info", description = "Facts that a client needs before a login."),
        (name = "accounts", description = "Owners of sockets."),
        (name = "organisations", description = "Organisations, and the accounts that belong to them."),
        (name = "sessions", description = "Logins and logouts of accounts."),
        (name = "tokens", description = "API tokens, for programs."),
        (name = "sockets", description = "Public endpoints."),
        (name = "tunnels", description = "Tunnels from sockets to origins."),
        (name = "origins", description = "Addresses that edges dial themselves, beside the tunnels of a socket."),
        (name = "domains", description = "Domains of organisations, which lead to their sockets."),
        (name = "certificates", description = "Certificates for names."),
        (name = "zones", description = "Zones that the name server answers for."),
        (name = "policies", description = "Named rules for access."),
        (name = "programs", description = "Logins of programs for persons, and their certificates."),
        (name = "identity", description = "Identities of machines, for sockets that require one."),
        (name = "audit", description = "The audit log, and running flows."),
        (name = "ssh keys", description = "Keys with which stock ssh clients log in."),
        (name = "providers", description = "Identity providers, which authenticate persons."),
        (name = "persons", description = "Persons with passwords at this installation."),
        (name = "edges", description = "The machines that serve clients and tunnels, where there are several."),
        (name = "anycast", description = "Prefixes that edges announce by BGP."),
        (name = "egress", description = "Addresses that edges share by slices of ports."),
        (name = "balancers", description = "Virtual addresses that the edges of a site share."),
        (name = "networks", description = "Networks of machines."),
        (name = "catchment", description = "Where clients land."),
        (name = "login sessions", description = "Logins of persons at sockets."),
    ),
)]
struct Api;

struct BearerToken;

impl Modify for BearerToken {
    fn modify(&self, openapi: &mut utoipa::openapi::OpenApi) {
        let scheme = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .description(Some("An access token from a login, or an API token (`spt_...`)."))
            .build();
        openapi.components.get_or_insert_default().add_security_scheme("bearer", SecurityScheme::Http(scheme));
    }
}

/// Bodies that may be absent, because all their fields are optional. An `Option` type would describe them as nullable
/// instead.
const BODY_MAY_BE_ABSENT: [&str; 4] =
    ["/v1/sockets/{id}/tunnels", "/v1/persons/{id}/reset", "/v1/edges/{id}/drain", "/v1/edge-tokens"];

struct BodyMayBeAbsent;

impl Modify for BodyMayBeAbsent {
    fn modify(&self, openapi: &mut utoipa::openapi::OpenApi) {
        for path in BODY_MAY_BE_ABSENT {
            let path = openapi.paths.paths.get_mut(path);
            if let Some(RefOr::T(body)) = path.and_then(|path| path.post.as_mut()?.request_body.as_mut()) {
                body.required = Some(Required::False);
            }
        }
    }
}

/// Refers to each named type by its name, in pages as well, so that generated clients have one type for each.
struct OneTypeOfEach;

impl Modify for OneTypeOfEach {
    fn modify(&self, openapi: &mut utoipa::openapi::OpenApi) {
        let components = openapi.components.get_or_insert_default();
        components.schemas.extend(named_objects().into_iter().map(|(name, object)| (name.to_owned(), object.into())));
        let pages = components.schemas.iter_mut().filter_map(|(name, page)| Some((name.strip_prefix("Page_")?, page)));
        for (item, page) in pages {
            if let RefOr::T(Schema::Object(page)) = page
                && let Some(RefOr::T(Schema::Array(items))) = page.properties.get_mut("items")
            {
                items.items = ArrayItems::RefOrSchema(Box::new(Ref::from_schema_name(item).into()));
            }
        }
    }
}

/// The responses that every operation has besides its own: an error, whose kind is the problem's `code`.
struct ErrorResponses;

impl IntoResponses for ErrorResponses {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        let error = ResponseBuilder::new().description("Error; see `code`.").content(PROBLEM_JSON, problem()).build();
        BTreeMap::from([("default".to_owned(), error.into())])
    }
}

/// The body of every error.
fn problem() -> Content {
    Content::new(Some(Ref::from_schema_name("Problem")))
}

/// Adds [`ErrorResponses`] to every operation, and a body to the errors that operations name themselves.
struct ProblemResponses;

impl Modify for ProblemResponses {
    fn modify(&self, openapi: &mut utoipa::openapi::OpenApi) {
        let paths = openapi.paths.paths.values_mut();
        let operations = paths.flat_map(|path| {
            [&mut path.get, &mut path.post, &mut path.put, &mut path.patch, &mut path.delete].into_iter().flatten()
        });
        for Responses { responses, .. } in operations.map(|operation| &mut operation.responses) {
            for (status, response) in responses.iter_mut() {
                if let RefOr::T(response) = response
                    && status.starts_with(['4', '5'])
                    && response.content.is_empty()
                {
                    response.content.insert(PROBLEM_JSON.to_owned(), problem().into());
                }
            }
            responses.extend(ErrorResponses::responses());
        }
    }
}

/// The description of the API.
#[must_use]
pub fn openapi() -> utoipa::openapi::OpenApi {
    Api::openapi()
}

/// The description of the API as it is committed in `api/openapi.json`.
#[must_use]
pub fn openapi_json() -> String {
    openapi().to_pretty_json().map(|json| json + "\n").unwrap_or_default()
}
