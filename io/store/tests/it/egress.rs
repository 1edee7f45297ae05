//! Egress addresses and the leases of their slices.

use sallyport_model::EdgeId;
use sallyport_ports::{EgressAddress, Lease, MAX_ADDRESSES, Phase, Slice};
use sallyport_store::{StoreError, StoredEgressAddress};

use crate::fixtures::{NOW, store_with_account};

fn address(number: usize) -> StoredEgressAddress {
    let address = EgressAddress::new(format!("198.51.100.{number}").parse().unwrap());
    StoredEgressAddress { address: EgressAddress { country: "CH".parse().ok(), ..address }, created_at: NOW }
}

fn lease(machine: u8, term: u64) -> Lease {
    Lease {
        address: "198.51.100.1".parse().unwrap(),
        slice: Slice::try_from(3).unwrap(),
        machine: EdgeId::from_random([machine; 16]),
        term,
        lasts_seconds: 60,
        phase: Phase::Held,
    }
}

#[tokio::test]
async fn a_lease_changes_only_from_the_state_that_its_writer_knows() {
    let (_dir, store) = store_with_account().await;
    let one = lease(1, 1);
    assert!(!store.put_egress_lease(&one, None).await.unwrap(), "a slice of no address");
    store.create_egress_address(&address(1)).await.unwrap();
    let taken = store.create_egress_address(&address(1)).await.unwrap_err();
    assert!(matches!(taken, StoreError::EgressTaken { .. }), "{taken}");
    assert!(store.put_egress_lease(&one, None).await.unwrap());
    // Two controls grant the same slice: one of them is late.
    assert!(!store.put_egress_lease(&lease(2, 1), None).await.unwrap());
    let moving = Lease { phase: Phase::Draining { to: Some(lease(2, 1).machine), within_seconds: 9 }, ..one.clone() };
    assert!(store.put_egress_lease(&moving, Some(&one)).await.unwrap());
    assert!(!store.put_egress_lease(&lease(2, 2), Some(&one)).await.unwrap());
    assert!(store.put_egress_lease(&lease(2, 2), Some(&moving)).await.unwrap());
    let all = store.egress().await.unwrap();
    assert_eq!((all.addresses, all.leases), (vec![address(1)], vec![lease(2, 2)]));
    assert!(store.delete_egress_address(address(1).address.address).await.unwrap());
    assert!(!store.delete_egress_address(address(1).address.address).await.unwrap());
    assert_eq!(store.egress().await.unwrap(), sallyport_store::StoredEgress::default());
}

#[tokio::test]
async fn the_number_of_addresses_has_a_bound() {
    let (_dir, store) = store_with_account().await;
    for number in 1..=MAX_ADDRESSES {
        store.create_egress_address(&address(number)).await.unwrap();
    }
    let full = store.create_egress_address(&address(MAX_ADDRESSES + 1)).await.unwrap_err();
    assert!(matches!(full, StoreError::Limit { .. }), "{full}");
}
