//! Networks of machines and the leases of their addresses.

use std::{collections::BTreeSet, net::IpAddr};

use sallyport_model::{CredentialHash, MachineId, NetworkId};
use sallyport_network::{members::JoinError, route::NetworkRoute};
use sallyport_store::{
    DATABASE_FILE, MAX_NETWORKS_PER_ORGANISATION, NewMachine, NewNetwork, Store, StoreError, StoredMachine,
    StoredNetwork,
};

use crate::{
    fixtures::{NOW, account, store_with_account},
    open::sql,
};

fn network(number: u8, name: &str, ranges: &[&str]) -> NewNetwork {
    NewNetwork {
        id: NetworkId::from_random([number; 16]),
        account: account(1).account.id,
        name: name.parse().unwrap(),
        ranges: (!ranges.is_empty()).then(|| ranges.iter().map(|range| range.parse().unwrap()).collect()),
        random: [7; 16],
        created_at: NOW,
    }
}

fn machine(number: u8) -> NewMachine {
    NewMachine {
        id: MachineId::from_random([number; 16]),
        name: format!("m{number}").parse().unwrap(),
        credential: CredentialHash([number; 32]),
        routes: Vec::new(),
        groups: vec!["web".parse().unwrap()],
        is_exit: number == 1,
        added_by: account(1).account.id,
        created_at: NOW,
    }
}

fn fits(_: &NetworkRoute) -> Result<(), StoreError> {
    Ok(())
}

async fn add(store: &Store, network: NetworkId, new: &NewMachine) -> Result<StoredMachine, StoreError> {
    store.add_machine(network, new, &[], fits).await.map(|added| added.unwrap().1)
}

async fn office(store: &Store) -> StoredNetwork {
    store.create_network(&network(1, "office", &["10.20.0.0/29", "fd00:20::/64"])).await.unwrap()
}

#[tokio::test]
async fn a_machine_keeps_its_leases_and_a_freed_address_is_leased_last() {
    let (_dir, store) = store_with_account().await;
    let office = office(&store).await;
    let one = add(&store, office.id, &machine(1)).await.unwrap();
    let addresses = |texts: [&str; 2]| texts.map(|text| text.parse::<IpAddr>().unwrap()).to_vec();
    assert_eq!(one.route.addresses, addresses(["10.20.0.1", "fd00:20::1"]));
    assert!(store.delete_machine(office.id, one.route.id).await.unwrap());
    assert!(!store.delete_machine(office.id, one.route.id).await.unwrap());
    let two = add(&store, office.id, &machine(2)).await.unwrap();
    assert_eq!(two.route.addresses, addresses(["10.20.0.2", "fd00:20::2"]));
    let found = store.network(office.id).await.unwrap().unwrap();
    assert_eq!(two.added_by, Some(account(1).account.id));
    assert_eq!(found.machines, vec![two]);
    assert_eq!(store.network_named(office.account, &office.name).await.unwrap(), Some(found.clone()));
    assert_eq!(store.networks_of(office.account).await.unwrap(), vec![found.summary()]);
    assert_eq!(store.networks().await.unwrap(), vec![found]);
    assert!(store.networks_of(account(2).account.id).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_list_of_networks_counts_their_machines_and_reads_none() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).await.unwrap();
    store.create_account(account(1)).await.unwrap();
    let office = office(&store).await;
    store.create_network(&network(2, "shop", &[])).await.unwrap();
    for number in 1..=3 {
        add(&store, office.id, &machine(number)).await.unwrap();
    }
    store.set_network_policy(office.id, Some("network = \"office\""), fits).await.unwrap();
    // A machine that cannot be read is no matter of the list.
    sql(&dir.path().join(DATABASE_FILE), "UPDATE network_machines SET content = 'x'").await;
    store.network(office.id).await.unwrap_err();
    let listed = store.networks_of(office.account).await.unwrap();
    let listed: Vec<_> = listed.iter().map(|one| (one.name.as_str(), one.machines, one.has_policy)).collect();
    assert_eq!(listed, [("office", 3, true), ("shop", 0, false)]);
}

#[tokio::test]
async fn machines_that_join_at_once_share_no_address_and_the_last_ones_find_none() {
    let (_dir, store) = store_with_account().await;
    let office = office(&store).await;
    let mut joining = tokio::task::JoinSet::new();
    for number in 1..=9 {
        let (store, id) = (store.clone(), office.id);
        joining.spawn(async move { add(&store, id, &machine(number)).await });
    }
    let (mut leased, mut full) = (BTreeSet::new(), 0);
    for joined in joining.join_all().await {
        match joined {
            Ok(machine) => leased.extend(machine.route.addresses),
            Err(StoreError::Join(JoinError::Full(_))) => full += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!((leased.len(), full), (12, 3), "six addresses of each family");
    assert_eq!(store.network(office.id).await.unwrap().unwrap().machines.len(), 6);
}

#[tokio::test]
async fn what_is_refused_leases_nothing() {
    let (_dir, store) = store_with_account().await;
    let office = office(&store).await;
    let gate = NewMachine { routes: vec!["10.30.0.0/16".parse().unwrap()], ..machine(1) };
    add(&store, office.id, &gate).await.unwrap();
    let twice = add(&store, office.id, &NewMachine { name: gate.name.clone(), ..machine(2) }).await.unwrap_err();
    assert!(matches!(twice, StoreError::Join(JoinError::SameName(_))), "{twice}");
    let inside = NewMachine { routes: vec!["10.30.1.0/24".parse().unwrap()], ..machine(2) };
    let overlapping = add(&store, office.id, &inside).await.unwrap_err();
    assert!(matches!(overlapping, StoreError::Join(JoinError::OverlapsRoute { .. })), "{overlapping}");
    let refused = store.add_machine(office.id, &machine(2), &[], |_| Err(StoreError::Busy)).await.unwrap_err();
    assert!(matches!(refused, StoreError::Busy), "{refused}");
    let nowhere = store.add_machine(NetworkId::from_random([9; 16]), &machine(2), &[], fits).await.unwrap();
    assert_eq!(nowhere, None);
    let second = add(&store, office.id, &machine(2)).await.unwrap();
    assert_eq!(second.route.addresses[0].to_string(), "10.20.0.2");
}

#[tokio::test]
async fn ranges_of_an_organisation_overlap_nothing_and_are_found_if_none_is_named() {
    let (_dir, store) = store_with_account().await;
    store.create_account(account(2)).await.unwrap();
    let office = office(&store).await;
    let taken = store.create_network(&network(2, "shop", &["10.20.0.0/16"])).await.unwrap_err();
    assert!(matches!(taken, StoreError::RangeTaken { .. }), "{taken}");
    let named = store.create_network(&network(2, "office", &["10.21.0.0/16"])).await.unwrap_err();
    assert!(matches!(named, StoreError::NameTaken { .. }), "{named}");
    let foreign = NewNetwork { account: account(2).account.id, ..network(2, "office", &["10.20.0.0/29"]) };
    store.create_network(&foreign).await.unwrap();
    let found = store.create_network(&network(3, "shop", &[])).await.unwrap();
    let again = store.create_network(&network(4, "plant", &[])).await.unwrap();
    assert!(found.ranges.iter().all(|range| !again.ranges.contains(range) && !office.ranges.contains(range)));
    for number in 5..=u8::try_from(MAX_NETWORKS_PER_ORGANISATION + 1).unwrap() {
        store.create_network(&network(number, &format!("n{number}"), &[])).await.unwrap();
    }
    let full = store.create_network(&network(200, "last", &[])).await.unwrap_err();
    assert!(matches!(full, StoreError::Limit { .. }), "{full}");
}

#[tokio::test]
async fn a_network_goes_with_its_machines_only_by_force() {
    let (_dir, store) = store_with_account().await;
    let office = office(&store).await;
    let set = |policy: Option<&'static str>| store.set_network_policy(office.id, policy, fits);
    assert!(set(Some("network = \"office\"")).await.unwrap());
    assert!(store.set_network_policy(office.id, None, |_| Err(StoreError::Busy)).await.is_err());
    let found = store.network(office.id).await.unwrap().unwrap();
    assert_eq!(found.policy.as_deref(), Some("network = \"office\""));
    assert!(set(None).await.unwrap());
    add(&store, office.id, &machine(1)).await.unwrap();
    let used = store.delete_network(office.id, false).await.unwrap_err();
    assert!(matches!(used, StoreError::NetworkInUse { machines: 1 }), "{used}");
    assert!(store.delete_network(office.id, true).await.unwrap());
    assert!(!store.delete_network(office.id, true).await.unwrap());
    assert!(!set(None).await.unwrap());
}
