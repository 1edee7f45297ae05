//! Certificates for names, and the leases on them.

use sallyport_model::{AcmeChallenge, CertificateId, ChallengeId, ChallengeKind};
use sallyport_store::{
    CertificateCounts, CertificateSource, HolderId, IssuedChain, PendingOrder, Store, WantedCertificate, WantedChanges,
};

use crate::fixtures::{NOW, account, store_with_account};

fn wanted(n: u8, names: &[&str]) -> WantedCertificate {
    WantedCertificate {
        id: CertificateId::from_random([n; 16]),
        organisation: (n > 1).then(|| account(1).account.id),
        names: names.iter().map(|name| name.parse().unwrap()).collect(),
    }
}

fn issued(until: i64) -> IssuedChain {
    IssuedChain { chain: "chain".into(), sealed_key: "sealed".into(), not_before: NOW, not_after: until }
}

async fn names(store: &Store) -> Vec<String> {
    store.certificates().await.unwrap().iter().map(|row| row.names[0].to_string()).collect()
}

#[tokio::test]
async fn rows_follow_the_wanted_names() {
    let (_dir, store) = store_with_account().await;
    let (site, app) = (wanted(1, &["example.net", "*.example.net"]), wanted(2, &["app.example.com"]));
    assert_eq!(store.want_certificates(&[site.clone(), app.clone()], NOW).await.unwrap(), WantedChanges::default());
    // New ids for the same names change nothing.
    let same = WantedCertificate { id: CertificateId::from_random([9; 16]), ..app.clone() };
    assert_eq!(store.want_certificates(&[site.clone(), same], NOW).await.unwrap(), WantedChanges::default());
    assert_eq!(names(&store).await, ["app.example.com", "example.net"]);
    assert_eq!(store.certificates_of(Some(account(1).account.id)).await.unwrap().len(), 1);
    assert_eq!(store.want_certificates(std::slice::from_ref(&site), NOW).await.unwrap().removed, [app.id]);
    // An imported certificate stays, whether its name is wanted or not, and is not ordered.
    store.import_certificate(&app, &issued(NOW + 9), NOW).await.unwrap();
    store.want_certificates(&[site.clone(), app.clone()], NOW).await.unwrap();
    assert_eq!(store.want_certificates(&[site], NOW).await.unwrap(), WantedChanges::default());
    let row = store.certificate(app.id).await.unwrap().unwrap();
    assert_eq!((row.source, row.issued), (CertificateSource::Imported, Some(issued(NOW + 9))));
    assert_eq!(store.due_certificates([1; 16], NOW, 9).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_certificate_comes_back_with_its_name_to_the_organisation_that_had_it() {
    let (_dir, store) = store_with_account().await;
    let app = wanted(2, &["app.example.com"]);
    let issue = async |id| {
        let lease = store.lease_certificate(id, [1; 16], NOW, NOW + 20).await.unwrap().unwrap();
        assert!(store.end_certificate_step(lease, Some(&issued(NOW + 90)), ("{}", NOW + 60, None)).await.unwrap());
    };
    let want = async |rows: &[WantedCertificate], at| store.want_certificates(rows, at).await.unwrap();
    let again = |n: u8, names: &[&str]| WantedCertificate { organisation: app.organisation, ..wanted(n, names) };
    want(std::slice::from_ref(&app), NOW).await;
    issue(app.id).await;
    assert_eq!(want(&[], NOW + 1).await, WantedChanges { removed: vec![app.id], restored: vec![] });
    assert!(names(&store).await.is_empty());
    let third = again(3, &["app.example.com"]);
    assert_eq!(want(std::slice::from_ref(&third), NOW + 2).await.restored, [third.id]);
    let row = store.certificate(third.id).await.unwrap().unwrap();
    assert_eq!((row.issued, row.schedule.as_str(), row.due_at), (Some(issued(NOW + 90)), "{}", NOW + 2));

    // Other names, and another organisation, begin anew; the former certificate is then forgotten.
    for other in [again(4, &["app.example.com", "b.example.com"]), wanted(1, &["app.example.com"])] {
        want(&[], NOW + 3).await;
        assert_eq!(want(std::slice::from_ref(&other), NOW + 4).await.restored, []);
        assert!(store.certificate(other.id).await.unwrap().unwrap().issued.is_none());
        want(&[], NOW + 5).await;
        let fresh = again(5, &["app.example.com"]);
        assert_eq!(want(std::slice::from_ref(&fresh), NOW + 6).await.restored, []);
        issue(fresh.id).await;
    }
    // An ended one does not come back.
    want(&[], NOW + 89).await;
    assert_eq!(want(&[again(6, &["app.example.com"])], NOW + 90).await.restored, []);
}

#[tokio::test]
async fn one_holder_works_at_a_row_and_a_late_one_changes_nothing() {
    let (_dir, store) = store_with_account().await;
    let app = wanted(2, &["app.example.com"]);
    store.want_certificates(std::slice::from_ref(&app), NOW).await.unwrap();
    let (one, other): (HolderId, HolderId) = ([1; 16], [2; 16]);
    let first = store.lease_certificate(app.id, one, NOW, NOW + 20).await.unwrap().unwrap();
    assert!(store.lease_certificate(app.id, other, NOW + 19, NOW + 40).await.unwrap().is_none());
    assert!(store.due_certificates(other, NOW + 19, 9).await.unwrap().is_empty());
    assert!(store.prolong_certificate_lease(first, NOW + 30).await.unwrap());
    let order = PendingOrder {
        sealed_key: "key".into(),
        directory: "https://ca.example/dir".into(),
        url: Some("https://ca.example/order/1".into()),
    };
    assert!(store.set_certificate_order(first, Some(&order)).await.unwrap());

    // The first holder is silent: the other one takes over, and finds the order.
    assert_eq!(store.due_certificates(other, NOW + 30, 9).await.unwrap()[0].order, Some(order));
    let second = store.lease_certificate(app.id, other, NOW + 30, NOW + 50).await.unwrap().unwrap();
    assert!(second.fence > first.fence);
    assert!(!store.prolong_certificate_lease(first, NOW + 99).await.unwrap());
    assert!(!store.set_certificate_order(first, None).await.unwrap());
    assert!(!store.end_certificate_step(first, Some(&issued(1)), ("late", NOW, None)).await.unwrap());
    assert!(store.certificate(app.id).await.unwrap().unwrap().issued.is_none());
    assert!(store.end_certificate_step(second, Some(&issued(NOW + 90)), ("{}", NOW + 60, None)).await.unwrap());
    let row = store.certificate(app.id).await.unwrap().unwrap();
    assert_eq!((row.issued, row.order, row.due_at), (Some(issued(NOW + 90)), None, NOW + 60));
    assert!(store.hasten_certificate(app.id, "again", NOW + 31).await.unwrap());
    assert_eq!(store.due_certificates(one, NOW + 31, 9).await.unwrap()[0].schedule, "again");
    assert!(store.delete_certificate(app.id).await.unwrap());
    assert!(store.lease_certificate(app.id, one, NOW, NOW).await.unwrap().is_none());
}

#[tokio::test]
async fn the_first_account_at_an_acme_server_counts_and_challenges_end() {
    let (_dir, store) = store_with_account().await;
    assert_eq!(store.acme_account("https://ca.example/dir").await.unwrap(), None);
    assert_eq!(store.keep_acme_account("https://ca.example/dir", "one", NOW).await.unwrap(), "one");
    assert_eq!(store.keep_acme_account("https://ca.example/dir", "two", NOW).await.unwrap(), "one");
    store.forget_acme_account("https://ca.example/dir").await.unwrap();
    assert_eq!(store.acme_account("https://ca.example/dir").await.unwrap(), None);
    let challenge = AcmeChallenge {
        id: ChallengeId::from_random([1; 16]),
        name: "app.example.com".into(),
        kind: ChallengeKind::Http01,
        token: "tok".into(),
        key_authorization: "tok.key".into(),
    };
    store.put_challenge(&challenge, NOW, NOW + 60).await.unwrap();
    assert_eq!(store.challenges(NOW).await.unwrap(), std::slice::from_ref(&challenge));
    assert_eq!(store.challenge(challenge.id, NOW + 60).await.unwrap(), None);
    store.delete_challenge(challenge.id).await.unwrap();
    assert!(store.challenges(NOW).await.unwrap().is_empty());
}

#[tokio::test]
async fn organisations_take_turns_and_a_found_record_makes_a_look_due() {
    let (_dir, store) = store_with_account().await;
    let mut rows: Vec<_> = (2..9).map(|n| wanted(n, &[&format!("n{n}.example.com")])).collect();
    store.want_certificates(&rows, NOW).await.unwrap();
    rows.push(wanted(1, &["late.example.net"]));
    store.want_certificates(&rows, NOW + 1).await.unwrap();
    let due = async |at| {
        let due = store.due_certificates([1; 16], at, 2).await.unwrap();
        due.iter().map(|row| row.names[0].to_string()).collect::<Vec<_>>()
    };
    assert_eq!(due(NOW + 1).await, ["n2.example.com", "late.example.net"], "one of each");
    // It waits for a record; the record is found; and a certificate is not looked at for that.
    let name = rows[7].names[0].clone();
    let lease = store.lease_certificate(rows[7].id, [1; 16], NOW, NOW + 20).await.unwrap().unwrap();
    assert!(store.end_certificate_step(lease, None, ("", NOW + 600, Some("no address"))).await.unwrap());
    assert_eq!(due(NOW + 2).await, ["n2.example.com", "n3.example.com"]);
    assert!(store.look_at_certificate(&name, NOW + 3).await.unwrap());
    assert!(due(NOW + 3).await.contains(&name.to_string()));
    let lease = store.lease_certificate(rows[7].id, [1; 16], NOW, NOW + 20).await.unwrap().unwrap();
    assert!(store.end_certificate_step(lease, Some(&issued(NOW + 9)), ("", NOW + 8, None)).await.unwrap());
    assert!(!store.look_at_certificate(&name, NOW + 3).await.unwrap());
}

#[tokio::test]
async fn certificates_are_counted_by_state() {
    let (_dir, store) = store_with_account().await;
    let rows = [wanted(1, &["a.example"]), wanted(2, &["b.example"]), wanted(3, &["c.example"])];
    store.want_certificates(&rows, NOW).await.unwrap();
    assert_eq!(store.count_certificates(NOW).await.unwrap(), CertificateCounts { waiting: 3, ..Default::default() });
    store.import_certificate(&rows[0], &issued(NOW + 9), NOW).await.unwrap();
    store.import_certificate(&rows[1], &issued(NOW + 1), NOW).await.unwrap();
    let counts = store.count_certificates(NOW + 1).await.unwrap();
    assert_eq!(counts, CertificateCounts { waiting: 1, expired: 1, valid: 1, ..Default::default() });
    let lease = store.lease_certificate(rows[2].id, [1; 16], NOW, NOW + 20).await.unwrap().unwrap();
    assert!(store.end_certificate_step(lease, None, ("", NOW + 60, Some("no address"))).await.unwrap());
    assert_eq!(store.count_certificates(NOW + 1).await.unwrap(), CertificateCounts { problems: 1, ..counts });
}
