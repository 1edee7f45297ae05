//! What control said of a site last, and what of it is believed.

use sallyport_api::{BalancedEdgeState, Balancer, EgressSlice};
use serde::{Deserialize, Serialize};

/// What control said of a site.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Known {
    /// The balancer, with its edges and services.
    #[serde(flatten)]
    pub(super) balancer: Balancer,
    /// The slices of all egress addresses.
    #[serde(default)]
    pub(super) egress_slices: Vec<EgressSlice>,
    /// The balancers of all other sites.
    #[serde(default)]
    pub(super) other_sites: Vec<Balancer>,
}

impl Known {
    /// What counts when control says this.
    pub(super) fn believing(&self, said: Self) -> Self {
        let balancer = believed(&self.balancer, said.balancer);
        let mut egress_slices = said.egress_slices;
        // Packets for the flows of an edge that control does not see still need the edge's address.
        for slice in egress_slices.iter_mut().filter(|slice| slice.edge_addresses.is_empty()) {
            let before = self.egress_slices.iter().find(|before| before.edge_id == slice.edge_id);
            slice.edge_addresses = before.map(|before| before.edge_addresses.clone()).unwrap_or_default();
        }
        Self { balancer, egress_slices, other_sites: said.other_sites }
    }
}

/// What counts of what control says now: control that has lost sight of all edges is not believed about them.
fn believed(known: &Balancer, said: Balancer) -> Balancer {
    let has_edges = |balancer: &Balancer| balancer.edges.iter().any(|edge| edge.state != BalancedEdgeState::Down);
    let mut said = said;
    if said.is_stale || (!has_edges(&said) && has_edges(known)) {
        said.edges.clone_from(&known.edges);
        // The ports of edges themselves come from edges.
        said.services.clone_from(&known.services);
        return said;
    }
    // An edge that is gone has no address any more, and its flows still need one.
    for edge in said.edges.iter_mut().filter(|edge| edge.address.is_none()) {
        let before = known.edges.iter().find(|before| before.name == edge.name);
        (edge.address, edge.probe_port) = before.map_or((None, None), |before| (before.address, before.probe_port));
    }
    said
}

#[cfg(test)]
pub(super) mod tests {
    use sallyport_api::BalancedEdge;
    use serde_json::json;

    use super::{super::plan::tests::balancer, *};

    pub(in crate::control) fn known() -> Known {
        let slice = json!({
            "id": "198.51.100.7-1", "address": "198.51.100.7", "slice": 1, "first_port": 2_048, "last_port": 4_095,
            "state": "held", "edge": "eu-1", "edge_id": "00000000-0000-4000-8000-000000000001",
            "edge_addresses": ["192.0.2.11"], "term": 1,
        });
        Known {
            balancer: balancer(),
            egress_slices: vec![serde_json::from_value(slice).unwrap()],
            other_sites: Vec::new(),
        }
    }

    #[test]
    fn a_slice_keeps_the_address_of_an_edge_that_control_does_not_see() {
        let known = known();
        let mut said = known.clone();
        said.egress_slices[0].edge_addresses.clear();
        assert_eq!(known.believing(said.clone()), known);
        said.egress_slices.clear();
        assert!(known.believing(said).egress_slices.is_empty(), "a slice that is gone is gone");
    }

    #[test]
    fn a_file_without_slices_is_read() {
        let text = serde_json::to_vec(&balancer()).unwrap();
        let read: Known = serde_json::from_slice(&text).unwrap();
        assert_eq!((read.balancer, read.egress_slices.len()), (balancer(), 0));
    }

    #[test]
    fn control_that_has_lost_sight_of_all_edges_is_not_believed_about_them() {
        let known = balancer();
        let mut said = balancer();
        for edge in &mut said.edges {
            (edge.state, edge.address) = (BalancedEdgeState::Down, None);
        }
        said.addresses.pop();
        let counts = believed(&known, said.clone());
        assert_eq!((counts.edges.clone(), counts.addresses.len()), (known.edges.clone(), 1));
        said.edges[1] = BalancedEdge { state: BalancedEdgeState::Serving, ..known.edges[1].clone() };
        let counts = believed(&known, said.clone());
        assert_eq!(counts.edges[0].state, BalancedEdgeState::Down);
        assert_eq!(counts.edges[0].address, known.edges[0].address, "flows of a gone edge still have its address");
        said.is_stale = true;
        assert_eq!(believed(&known, said).edges, known.edges);
    }
}
