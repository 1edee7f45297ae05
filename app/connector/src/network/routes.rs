//! Which routes a machine may use: none by which its own carrier goes.

use std::net::IpAddr;

use ipnet::IpNet;

use super::NetworkError;

/// Checks that the way to the edge is outside of the network.
pub(super) fn check(ranges: &[IpNet], way_out: &[IpAddr]) -> Result<(), NetworkError> {
    for range in ranges {
        if let Some(address) = way_out.iter().find(|address| range.contains(*address)) {
            return Err(NetworkError::Swallows(range.trunc(), *address));
        }
    }
    Ok(())
}

/// The routes that can be used, and those that have an address of the way to the edge.
pub(super) fn split(routes: &[IpNet], way_out: &[IpAddr]) -> (Vec<IpNet>, Vec<IpNet>) {
    let is_usable = |route: &&IpNet| !way_out.iter().any(|address| route.contains(address));
    routes.iter().partition(is_usable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_route_has_the_way_to_the_edge() {
        let nets = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<IpNet>>();
        let way_out = ["192.0.2.1".parse().unwrap(), "2001:db8::1".parse().unwrap()];
        let routes = nets(&["10.30.0.0/16", "192.0.2.0/24", "2001:db8::/32", "192.0.3.0/24"]);
        let (used, left_out) = split(&routes, &way_out);
        assert_eq!(used, nets(&["10.30.0.0/16", "192.0.3.0/24"]));
        assert_eq!(left_out, nets(&["192.0.2.0/24", "2001:db8::/32"]));
        assert!(check(&nets(&["10.20.0.1/24"]), &way_out).is_ok());
        let error = check(&nets(&["10.20.0.1/24", "192.0.2.9/24"]), &way_out).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the range 192.0.2.0/24 of the network has 192.0.2.1, by which this machine reaches the edge"
        );
    }
}
