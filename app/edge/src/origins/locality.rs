//! The location of an origin.

use sallyport_balance::nearness::Nearness;
use sallyport_model::RegionName;

/// The location of an origin, as far as this edge knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    /// The region of the origin; `None` if unknown or in installations without regions.
    pub(crate) region: Option<RegionName>,
    /// Whether this edge reaches the origin itself, and not through another edge.
    pub(crate) is_local: bool,
}

impl Place {
    /// A location that this edge reaches itself.
    pub(crate) fn local(region: Option<RegionName>) -> Self {
        Self { region, is_local: true }
    }

    /// How near the origin is to an edge in this region. The region counts first: an origin elsewhere is far even if
    /// its tunnel is attached here.
    pub(crate) fn nearness(&self, own: Option<&RegionName>) -> Nearness<&RegionName> {
        match (&self.region, own) {
            (Some(region), Some(own)) if region != own => Nearness::Far(region),
            _ if self.is_local => Nearness::Here,
            _ => Nearness::Near,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_in_another_region_is_far_wherever_its_tunnel_is_held() {
        let region = |name: &str| -> RegionName { name.parse().unwrap() };
        let (eu, us) = (region("eu"), region("us"));
        let at = |region: Option<&RegionName>, is_local| Place { region: region.cloned(), is_local };
        assert_eq!(at(Some(&eu), true).nearness(Some(&eu)), Nearness::Here);
        assert_eq!(at(None, true).nearness(Some(&eu)), Nearness::Here);
        assert_eq!(at(Some(&us), true).nearness(None), Nearness::Here, "without regions there is nothing far");
        assert_eq!(at(Some(&us), true).nearness(Some(&eu)), Nearness::Far(&us));
        assert_eq!(at(Some(&eu), false).nearness(Some(&eu)), Nearness::Near);
        assert_eq!(at(Some(&us), false).nearness(Some(&eu)), Nearness::Far(&us));
    }
}
