//! Balancers of sites.

use std::collections::BTreeMap;

use sallyport_model::{Encapsulation, MAX_BALANCED_SITES, SiteBalancer};
use sallyport_store::StoreError;

use crate::fixtures::{NOW, store_with_account};

fn balancer(site: &str, address: &str) -> SiteBalancer {
    SiteBalancer {
        site: site.parse().unwrap(),
        addresses: vec![address.parse().unwrap()],
        encapsulation: Encapsulation::Ipip,
        balancers: vec!["192.0.2.1".parse().unwrap()],
        weights: BTreeMap::new(),
    }
}

#[tokio::test]
async fn a_site_has_one_balancer_and_two_sites_share_no_address_that_is_not_free() {
    let (_dir, store) = store_with_account().await;
    let (eu, us) = (balancer("eu", "198.51.100.1"), balancer("us", "198.51.100.1"));
    assert_eq!(store.set_balancer(&eu, &[], NOW).await.unwrap(), NOW);
    let moved = balancer("eu", "198.51.100.1");
    assert_eq!(store.set_balancer(&moved, &[], NOW + 5).await.unwrap(), NOW, "the site had one before");
    let taken = store.set_balancer(&us, &[], NOW).await.unwrap_err();
    assert!(matches!(&taken, StoreError::VirtualAddressTaken { site, .. } if site.as_str() == "eu"), "{taken}");
    store.set_balancer(&us, &us.addresses, NOW).await.unwrap();
    let all: Vec<_> = store.balancers().await.unwrap().into_iter().map(|one| one.balancer).collect();
    assert_eq!(all, [moved, us.clone()]);
    assert!(store.delete_balancer(&us.site).await.unwrap());
    assert!(!store.delete_balancer(&us.site).await.unwrap());
    for n in 1..MAX_BALANCED_SITES {
        store.set_balancer(&balancer(&format!("r{n}"), &format!("198.51.100.{}", n + 1)), &[], NOW).await.unwrap();
    }
    let full = store.set_balancer(&us, &us.addresses, NOW).await.unwrap_err();
    assert!(matches!(full, StoreError::Limit { .. }), "{full}");
}
