//! Which of the kernel's routes leads to an address.

use std::net::IpAddr;

use sallyport_xdp::kernel::Route;

/// The devices of the most specific route to an address.
pub(super) fn devices_to(routes: &[Route], address: IpAddr) -> Vec<u32> {
    let leads = routes.iter().filter(|route| route.kind == "unicast" && contains(route, address));
    let best = leads.max_by_key(|route| (route.length, std::cmp::Reverse(route.metric)));
    best.into_iter().flat_map(|route| &route.hops).filter_map(|hop| hop.device).collect()
}

/// Whether an address is one of those that a route is for.
pub(super) fn contains(route: &Route, dest: IpAddr) -> bool {
    let (prefix, dest, width) = match (route.destination, dest) {
        (IpAddr::V4(prefix), IpAddr::V4(dest)) => (prefix.to_bits().into(), dest.to_bits().into(), 32),
        (IpAddr::V6(prefix), IpAddr::V6(dest)) => (prefix.to_bits(), dest.to_bits(), 128),
        _ => return false,
    };
    let (prefix, dest): (u128, u128) = (prefix, dest);
    let rest = width - u32::from(route.length).min(width);
    rest == 128 || prefix >> rest == dest >> rest
}

#[cfg(test)]
mod tests {
    use sallyport_xdp::kernel::Hop;

    use super::*;

    #[test]
    fn the_most_specific_route_leads_and_a_lower_metric_first() {
        let route = |destination: &str, length, metric, device| Route {
            destination: destination.parse().unwrap(),
            length,
            kind: "unicast",
            metric,
            hops: vec![Hop { gateway: None, device: Some(device), weight: 1 }],
        };
        let routes = [
            route("0.0.0.0", 0, 0, 1),
            route("10.0.0.0", 8, 20, 2),
            route("10.0.0.0", 8, 10, 3),
            route("10.1.0.0", 16, 500, 4),
        ];
        let to = |address: &str| devices_to(&routes, address.parse().unwrap());
        assert_eq!((to("192.0.2.1"), to("10.2.0.1"), to("10.1.0.1")), (vec![1], vec![3], vec![4]));
        assert_eq!(to("2001:db8::1"), Vec::<u32>::new());
    }
}
