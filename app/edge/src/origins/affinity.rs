//! Affinity: which origin a client returns to.

use std::{borrow::Cow, net::IpAddr, sync::Arc};

use http::{
    HeaderMap, HeaderValue,
    header::{COOKIE, SET_COOKIE},
};
use sallyport_balance::{
    OriginId,
    affinity::{AffinityCode, COOKIE_NAME, from_cookies},
};
use sallyport_model::OriginRef;

use crate::{
    config::AffinityKey,
    origins::{
        http::forwarding::Group,
        origin::Origin,
        rules::{Rules, Stickiness},
        selection::HasOrigin,
    },
};

/// The id of an origin in hashes.
pub(crate) fn origin_id(origin: OriginRef) -> OriginId {
    *origin.as_bytes()
}

/// Which origin a flow prefers, provided that the origin can take it.
#[derive(Debug, Default)]
pub(crate) enum AffinityHint {
    /// The one with the least load.
    #[default]
    Any,
    /// The one in the client's cookie for this group; `None` without a cookie.
    Cookie(Option<AffinityCode>, Group),
    /// The one to which this hash of the client's address leads.
    Address(Arc<Rules>, u64),
}

impl AffinityHint {
    /// The hint for a flow from this address.
    pub(crate) fn of_flow(rules: &Arc<Rules>, key: &AffinityKey, client: IpAddr) -> Self {
        match rules.stickiness() {
            Stickiness::Address(_) => Self::Address(rules.clone(), key.hash_key().client(client)),
            Stickiness::None | Stickiness::Cookie => Self::Any,
        }
    }

    /// The hint for a request to this group. Removes the affinity cookie from the request.
    pub(crate) fn of_request(
        rules: &Arc<Rules>,
        key: &AffinityKey,
        client: IpAddr,
        group: Group,
        headers: &mut HeaderMap,
    ) -> Self {
        match rules.stickiness() {
            Stickiness::Cookie => Self::Cookie(take_cookie(headers, group), group),
            _ => Self::of_flow(rules, key, client),
        }
    }

    /// The position of the preferred origin, if the origin is present and fit.
    pub(crate) fn find<T: HasOrigin>(
        &self,
        origins: &[T],
        code: impl Fn(&Origin) -> AffinityCode,
        fit: impl Fn(&Arc<Origin>) -> bool,
    ) -> Option<usize> {
        let mut all = origins.iter().map(HasOrigin::origin);
        match self {
            Self::Any | Self::Cookie(None, _) => None,
            Self::Cookie(Some(wished), _) => all.position(|origin| fit(origin) && code(origin).matches(wished)),
            Self::Address(rules, hash) => {
                let Stickiness::Address(table) = rules.stickiness() else { return None };
                let is = |origin: &Arc<Origin>, id: &OriginId| origin_id(origin.handle().origin()) == *id;
                let id = table.lookup_usable(*hash, |id| all.clone().any(|origin| is(origin, id) && fit(origin)))?;
                // A tunnel that changes connectors is present twice for a moment; the later one counts.
                all.rposition(|origin| is(origin, id) && fit(origin))
            }
        }
    }

    /// Adds the affinity cookie for this origin to a response, unless the client has the cookie already.
    pub(crate) fn set_cookie(&self, code: impl FnOnce() -> AffinityCode, headers: &mut HeaderMap) {
        let Self::Cookie(had, group) = self else { return };
        let code = code();
        if had.is_some_and(|had| had.matches(&code)) {
            return;
        }
        let cookie = format!("{}={}; Path=/; Secure; HttpOnly; SameSite=Lax", cookie_name(*group), code.encode());
        if let Ok(cookie) = HeaderValue::try_from(cookie) {
            headers.append(SET_COOKIE, cookie);
        }
    }
}

/// The name of the affinity cookie of the group. Each group has its own name, so that cookies do not replace each
/// other.
fn cookie_name(group: Group) -> Cow<'static, str> {
    if group == Group::ROOT {
        return Cow::Borrowed(COOKIE_NAME);
    }
    Cow::Owned(format!("{COOKIE_NAME}-{:016x}", group.number()))
}

/// Removes affinity cookies from the request, and returns the value for this group.
fn take_cookie(headers: &mut HeaderMap, group: Group) -> Option<AffinityCode> {
    let is_ours = |pair: &[u8]| {
        let name = pair.trim_ascii_start().split(|byte| *byte == b'=').next().unwrap_or_default();
        let rest = name.strip_prefix(COOKIE_NAME.as_bytes());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"-"))
    };
    let has_ours = |field: &HeaderValue| field.as_bytes().split(|byte| *byte == b';').any(is_ours);
    if !headers.get_all(COOKIE).iter().any(has_ours) {
        return None;
    }
    let fields: Vec<HeaderValue> = headers.get_all(COOKIE).iter().cloned().collect();
    headers.remove(COOKIE);
    let (mut code, name) = (None, cookie_name(group));
    for field in fields {
        code = code.or_else(|| from_cookies(field.as_bytes(), &name));
        let others = field.as_bytes().split(|byte| *byte == b';').filter(|pair| !is_ours(pair));
        let rest = others.map(<[u8]>::trim_ascii).collect::<Vec<_>>().join(&b"; "[..]);
        if let Some(rest) = HeaderValue::from_bytes(&rest).ok().filter(|rest| !rest.is_empty()) {
            headers.append(COOKIE, rest);
        }
    }
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(headers: &HeaderMap) -> Vec<&str> {
        headers.get_all(COOKIE).iter().map(|field| field.to_str().unwrap()).collect()
    }

    #[test]
    fn our_cookie_is_taken_out_and_the_others_stay() {
        let key = AffinityKey::from([7; 32]);
        let code = AffinityCode::new(key.hash_key(), &[1; 16], &[2; 16]);
        let mut headers = HeaderMap::new();
        for field in [&format!("a=1; {COOKIE_NAME}={};b=2", code.encode()), "c=3", &format!("{COOKIE_NAME}=rubbish")] {
            headers.append(COOKIE, HeaderValue::from_str(field).unwrap());
        }
        assert!(take_cookie(&mut headers, Group::ROOT).is_some_and(|found| found.matches(&code)));
        assert_eq!(fields(&headers), ["a=1; b=2", "c=3"]);
        assert!(take_cookie(&mut headers, Group::ROOT).is_none());
        assert_eq!(fields(&headers), ["a=1; b=2", "c=3"]);
    }

    #[test]
    fn each_group_has_a_cookie_of_its_own() {
        let key = AffinityKey::from([7; 32]);
        let code = |origin| AffinityCode::new(key.hash_key(), &[1; 16], &[origin; 16]);
        let api = Group::from_number(7);
        let both = || {
            let mut headers = HeaderMap::new();
            let cookie = |group, origin| format!("{}={}", cookie_name(group), code(origin).encode());
            let field = format!("{}; a=1; {}", cookie(Group::ROOT, 2), cookie(api, 3));
            headers.append(COOKIE, HeaderValue::from_str(&field).unwrap());
            headers
        };
        for (group, origin) in [(Group::ROOT, 2), (api, 3)] {
            let mut headers = both();
            assert!(take_cookie(&mut headers, group).is_some_and(|found| found.matches(&code(origin))));
            assert_eq!(fields(&headers), ["a=1"]);
        }
        assert!(take_cookie(&mut both(), Group::from_number(8)).is_none());
    }

    #[test]
    fn a_cookie_is_set_when_the_client_has_none_or_another_ones() {
        let code = |origin| AffinityCode::new(AffinityKey::from([7; 32]).hash_key(), &[1; 16], &[origin; 16]);
        let set = |hint: AffinityHint| {
            let mut headers = HeaderMap::new();
            hint.set_cookie(|| code(2), &mut headers);
            headers.contains_key(SET_COOKIE)
        };
        let cookie = |had| AffinityHint::Cookie(had, Group::ROOT);
        assert!(set(cookie(None)) && set(cookie(Some(code(3)))));
        assert!(!set(cookie(Some(code(2)))) && !set(AffinityHint::Any));
    }
}
