//! Where an origin is.

use sallyport_balance::nearness::Nearness;
use sallyport_model::RegionName;

/// Where an origin is, as far as this edge knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    /// The region that the origin is in; `None`: it is not known, or there are no regions.
    pub(crate) region: Option<RegionName>,
    /// Whether it is reached from here, and not by another edge.
    pub(crate) is_local: bool,
}

impl Place {
    /// Reached from here.
    pub(crate) fn local(region: Option<RegionName>) -> Self {
        Self { region, is_local: true }
    }

    /// How near that is to an edge in this region. What is in another region is far also where its tunnel is held here.
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
