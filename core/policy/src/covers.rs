//! Whether a rule covers another one.
//!
//! The check is conservative: it finds mistakes of authors, and decides nothing.

use crate::{PolicyRule, Rule, What, When, Who, ranges::Ranges, rule::networks, times::Minutes};

/// Whether `outer` matches every flow that `inner` matches.
pub(crate) fn covers(outer: &PolicyRule, inner: &PolicyRule) -> bool {
    let unrestricted = Who::default();
    let nothing = What::default();
    let always = When::default();
    who(outer.who.as_ref().unwrap_or(&unrestricted), inner.who.as_ref().unwrap_or(&unrestricted))
        && places(outer.from.as_deref(), inner.from.as_deref())
        && what(outer.what.as_ref().unwrap_or(&nothing), inner.what.as_ref().unwrap_or(&nothing))
        && when(outer.when.as_ref().unwrap_or(&always), inner.when.as_ref().unwrap_or(&always))
}

/// Upper bound of the entries that [`covers`] compares.
pub(crate) fn steps(outer: &PolicyRule, inner: &PolicyRule) -> usize {
    fn product<A, B>(outer: Option<&Vec<A>>, inner: Option<&Vec<B>>) -> usize {
        outer.map_or(0, Vec::len) * inner.map_or(1, Vec::len)
    }
    let (a, b) = (outer.who.as_ref(), inner.who.as_ref());
    let who = product(a.and_then(|a| a.emails.as_ref()), b.and_then(|b| b.emails.as_ref()))
        + product(a.and_then(|a| a.email_domains.as_ref()), b.and_then(|b| b.email_domains.as_ref()))
        + product(a.and_then(|a| a.email_domains.as_ref()), b.and_then(|b| b.emails.as_ref()))
        + product(a.and_then(|a| a.groups.as_ref()), b.and_then(|b| b.groups.as_ref()))
        + product(a.and_then(|a| a.providers.as_ref()), b.and_then(|b| b.providers.as_ref()))
        + product(a.and_then(|a| a.service_tokens.as_ref()), b.and_then(|b| b.service_tokens.as_ref()));
    let (a, b) = (outer.what.as_ref(), inner.what.as_ref());
    let what = product(a.and_then(|a| a.methods.as_ref()), b.and_then(|b| b.methods.as_ref()))
        + product(a.and_then(|a| a.paths.as_ref()), b.and_then(|b| b.paths.as_ref()))
        + product(a.and_then(|a| a.ports.as_ref()), b.and_then(|b| b.ports.as_ref()));
    1 + who + what + product(outer.from.as_ref(), inner.from.as_ref())
}

/// Whether `is_covered` holds for the rule, or for each part after splitting one of its lists.
pub(crate) fn is_covered_in_parts(rule: &PolicyRule, mut is_covered: impl FnMut(&PolicyRule) -> bool) -> bool {
    if is_covered(rule) {
        return true;
    }
    macro_rules! by {
        ($group:ident . $list:ident) => {
            if let Some(entries) = rule.$group.as_ref().and_then(|group| group.$list.as_ref()) {
                let mut part = rule.clone();
                let is_all_covered = entries.iter().all(|entry| {
                    if let Some(group) = &mut part.$group {
                        group.$list = Some(vec![entry.clone()]);
                    }
                    is_covered(&part)
                });
                if is_all_covered {
                    return true;
                }
            }
        };
    }
    by!(who.emails);
    by!(who.email_domains);
    by!(who.groups);
    by!(who.providers);
    by!(who.service_tokens);
    by!(what.methods);
    by!(what.paths);
    by!(what.ports);
    by!(when.weekly);
    let Some(from) = &rule.from else { return false };
    let mut part = rule.clone();
    from.iter().all(|entry| {
        part.from = Some(vec![*entry]);
        is_covered(&part)
    })
}

/// Whether all entries of `inner` are in `outer`, or `outer` is absent.
fn within<T: PartialEq>(outer: &Option<Vec<T>>, inner: &Option<Vec<T>>) -> bool {
    match (outer, inner) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(outer), Some(inner)) => inner.iter().all(|entry| outer.contains(entry)),
    }
}

fn who(outer: &Who, inner: &Who) -> bool {
    let domains = match (&outer.email_domains, &inner.email_domains, &inner.emails) {
        (Some(outer), None, Some(emails)) => {
            emails.iter().all(|email| outer.iter().any(|domain| domain.as_str() == email.domain()))
        }
        (outer, inner, _) => within(outer, inner),
    };
    domains
        && within(&outer.emails, &inner.emails)
        && within(&outer.groups, &inner.groups)
        && within(&outer.providers, &inner.providers)
        && within(&outer.service_tokens, &inner.service_tokens)
}

fn places(outer: Option<&[Rule]>, inner: Option<&[Rule]>) -> bool {
    let Some(outer) = outer else { return true };
    let ranges = Ranges::new(networks(outer));
    let is_within = |rule: &Rule| match rule {
        Rule::Network(network) => ranges.cover(*network),
        Rule::Country(_) | Rule::Asn(_) => outer.contains(rule),
    };
    inner.is_some_and(|inner| inner.iter().all(is_within))
}

fn what(outer: &What, inner: &What) -> bool {
    let paths = match (&outer.paths, &inner.paths) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(outer), Some(inner)) => inner.iter().all(|path| outer.iter().any(|outer| outer.covers(path))),
    };
    paths && within(&outer.methods, &inner.methods) && within(&outer.ports, &inner.ports)
}

fn when(outer: &When, inner: &When) -> bool {
    let weekly = match (&outer.weekly, &inner.weekly) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(wide), Some(narrow)) => {
            outer.time_zone == inner.time_zone && Minutes::of(wide).covers(&Minutes::of(narrow))
        }
    };
    let begins = outer.not_before.is_none_or(|outer| inner.not_before.is_some_and(|inner| outer <= inner));
    let ends = outer.not_after.is_none_or(|outer| inner.not_after.is_some_and(|inner| inner <= outer));
    weekly && begins && ends
}
