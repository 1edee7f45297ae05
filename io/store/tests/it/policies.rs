//! Policies and their attachments.

use sallyport_model::{PolicyId, SocketRoute};
use sallyport_store::{
    Attachment, Creation, MAX_POLICIES_PER_ORGANISATION, NewPolicy, NewSocket, Policy, PolicyChange, Store, StoreError,
};

use crate::fixtures::{NOW, account, make_socket, make_tunnel, new_socket, store_with_account};

fn new(owner: u8, n: u8, name: &str) -> NewPolicy {
    NewPolicy {
        id: PolicyId::from_random([n; 16]),
        organisation: account(owner).account.id,
        name: name.parse().unwrap(),
        document: format!("{{\"n\":{n}}}"),
        labels: Default::default(),
        created_at: NOW,
    }
}

async fn change(store: &Store, policy: &NewPolicy, change: PolicyChange) -> Result<Option<Policy>, StoreError> {
    store.change_policy(policy.organisation, policy.id, change, |_, _| Ok(())).await
}

fn attach(to: Attachment) -> PolicyChange {
    PolicyChange { attach: Some(to), ..PolicyChange::default() }
}

fn detach(from: Attachment) -> PolicyChange {
    PolicyChange { detach: Some(from), ..PolicyChange::default() }
}

fn names(route: &SocketRoute) -> Vec<&str> {
    route.policies.iter().map(|policy| policy.name.as_str()).collect()
}

#[tokio::test]
async fn routes_have_the_policies_that_concern_them() {
    let (_dir, store) = store_with_account().await;
    store.create_account(account(2)).await.unwrap();
    let (staff, all, foreign) = (new(1, 1, "staff"), new(1, 2, "all"), new(2, 3, "staff"));
    for policy in [&staff, &all, &foreign] {
        store.create_policy(policy).await.unwrap();
    }
    let one = make_socket(&store, 1, 1, &[1]).await.unwrap();
    let two = make_socket(&store, 1, 2, &[2]).await.unwrap();
    let other = make_socket(&store, 2, 3, &[3]).await.unwrap();
    make_tunnel(&store, 1, one.id, 1).await.unwrap();
    change(&store, &staff, attach(Attachment::Socket(one.id))).await.unwrap().unwrap();
    let twice = change(&store, &staff, attach(Attachment::Socket(one.id))).await.unwrap().unwrap();
    assert_eq!((twice.sockets.as_slice(), twice.everywhere, twice.updated_at), (&[one.id][..], false, NOW));
    change(&store, &all, attach(Attachment::Everywhere)).await.unwrap().unwrap();
    change(&store, &all, attach(Attachment::Socket(one.id))).await.unwrap().unwrap();

    for (socket, expected) in [(one.id, &["all", "staff"][..]), (two.id, &["all"]), (other.id, &[])] {
        assert_eq!(names(&store.route(socket).await.unwrap().unwrap()), expected);
        let routes = store.routes().await.unwrap();
        assert_eq!(names(routes.iter().find(|route| route.id == socket).unwrap()), expected);
    }
    let mut routes = store.routes_of(account(1).account.id).await.unwrap();
    routes.sort_by_key(|route| route.tunnels.len());
    assert_eq!(
        routes.iter().map(|route| (route.id, route.tunnels.len())).collect::<Vec<_>>(),
        [(two.id, 0), (one.id, 1)]
    );
    assert_eq!(names(&routes[1]), ["all", "staff"]);
    assert_eq!(store.routes().await.unwrap().len(), 3);

    let gone = change(&store, &foreign, attach(Attachment::Socket(one.id))).await.unwrap_err();
    assert!(matches!(gone, StoreError::Gone), "a socket of another organisation: {gone}");
    let not_hers = store
        .change_policy(account(2).account.id, staff.id, attach(Attachment::Everywhere), |_, _| Ok::<_, StoreError>(()));
    assert!(not_hers.await.unwrap().is_none());

    let error = store.delete_policy(staff.organisation, staff.id).await.unwrap_err();
    assert!(error.to_string().contains("attached to 1 socket"), "{error}");
    let error = store.delete_policy(all.organisation, all.id).await.unwrap_err();
    assert!(error.to_string().contains("attached to all sockets"), "{error}");
    store.delete_socket(one.account, one.id).await.unwrap();
    assert!(store.policy(staff.organisation, staff.id).await.unwrap().unwrap().sockets.is_empty());
    assert!(!store.delete_policy(account(2).account.id, staff.id).await.unwrap(), "it is not theirs");
    assert!(store.delete_policy(staff.organisation, staff.id).await.unwrap());
    change(&store, &all, detach(Attachment::Everywhere)).await.unwrap().unwrap();
    assert!(store.route(two.id).await.unwrap().unwrap().policies.is_empty());
}

#[tokio::test]
async fn a_change_is_looked_at_before_it_is_made() {
    let (_dir, store) = store_with_account().await;
    let staff = new(1, 1, "staff");
    store.create_policy(&staff).await.unwrap();
    let socket = make_socket(&store, 1, 1, &[1]).await.unwrap();
    let refused = store
        .change_policy(staff.organisation, staff.id, attach(Attachment::Socket(socket.id)), |before, after| {
            assert_eq!((before.len(), names(&before[0]).len(), names(&after[0])), (1, 0, vec!["staff"]));
            Err::<(), _>(StoreError::Busy)
        })
        .await;
    assert!(matches!(refused, Err(StoreError::Busy)));
    assert!(store.route(socket.id).await.unwrap().unwrap().policies.is_empty(), "nothing was changed");
    let edited = PolicyChange {
        name: Some("people".parse().unwrap()),
        document: Some("{}".to_owned()),
        now: NOW + 5,
        ..PolicyChange::default()
    };
    let edited = change(&store, &staff, edited).await.unwrap().unwrap();
    assert_eq!((edited.name.as_str(), edited.document.as_str(), edited.updated_at), ("people", "{}", NOW + 5));
    assert_eq!(store.policy_named(staff.organisation, &"people".parse().unwrap()).await.unwrap(), Some(staff.id));
    assert_eq!(store.policy_named(staff.organisation, &staff.name).await.unwrap(), None);
}

#[tokio::test]
async fn names_are_there_once_and_there_are_not_too_many() {
    let (_dir, store) = store_with_account().await;
    store.create_policy(&new(1, 1, "staff")).await.unwrap();
    let taken = store.create_policy(&new(1, 2, "staff")).await.unwrap_err();
    assert_eq!(taken.to_string(), "there is already a policy named \"staff\"");
    let second = new(1, 2, "other");
    store.create_policy(&second).await.unwrap();
    let renamed = PolicyChange { name: Some("staff".parse().unwrap()), ..PolicyChange::default() };
    assert!(matches!(change(&store, &second, renamed).await, Err(StoreError::PolicyNameTaken { .. })));
    assert!(matches!(store.create_policy(&new(9, 3, "staff")).await, Err(StoreError::Gone)));
    for n in 2..MAX_POLICIES_PER_ORGANISATION as u8 {
        store.create_policy(&new(1, 100 + n, &format!("p{n}"))).await.unwrap();
    }
    let error = store.create_policy(&new(1, 99, "more")).await.unwrap_err();
    assert!(matches!(error, StoreError::Limit { max: 100, .. }), "{error}");
    let organisation = account(1).account.id;
    let listed = store.policies(organisation, &[], 0, 2).await.unwrap();
    assert_eq!(listed.iter().map(|(_, policy)| policy.name.as_str()).collect::<Vec<_>>(), ["staff", "other"]);
    assert_eq!(
        store.policies(organisation, &[], listed[1].0, 200).await.unwrap().len(),
        MAX_POLICIES_PER_ORGANISATION - 2
    );
}

#[tokio::test]
async fn a_new_socket_has_its_policies_from_the_beginning() {
    let (_dir, store) = store_with_account().await;
    let (staff, all, rest) = (new(1, 1, "staff"), new(1, 2, "all"), new(1, 3, "rest"));
    for policy in [&staff, &all, &rest] {
        store.create_policy(policy).await.unwrap();
    }
    change(&store, &all, attach(Attachment::Everywhere)).await.unwrap();
    let concerning = store.policies_of_new_socket(staff.organisation, &[staff.id]).await.unwrap();
    assert_eq!(concerning.iter().map(|policy| policy.name.as_str()).collect::<Vec<_>>(), ["all", "staff"]);
    let socket = NewSocket { policies: vec![staff.id], ..new_socket(1, 1) };
    let Creation::Made((socket, _)) = store.create_socket(socket, &[1], None, |_| String::new()).await.unwrap() else {
        panic!("it was made before");
    };
    assert_eq!(store.route(socket.id).await.unwrap().unwrap().policies, concerning);
    let unknown = NewSocket { policies: vec![PolicyId::from_random([77; 16])], ..new_socket(1, 2) };
    assert!(matches!(store.create_socket(unknown, &[2], None, |_| String::new()).await, Err(StoreError::Gone)));
    let seen = store.change_socket_with_policies(socket.account, socket.id, |_, policies| {
        assert_eq!(policies.len(), 2);
        Err::<sallyport_store::SocketChange, _>(StoreError::Busy)
    });
    assert!(matches!(seen.await, Err(StoreError::Busy)));
}
