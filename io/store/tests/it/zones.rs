//! Zones of the name server.

use sallyport_model::{ZoneId, ZoneKey, ZoneKeyAlgorithm, ZoneKeyRole, ZoneRecord, ZoneRecordId};
use sallyport_store::{StoreError, StoredZone, StoredZoneRecord};

use crate::fixtures::{NOW, account, store_with_account};

fn zone(n: u8, apex: &str) -> StoredZone {
    let organisation = (n > 1).then(|| account(1).account.id);
    StoredZone { id: ZoneId::from_random([n; 16]), organisation, apex: apex.into(), serial: 1, created_at: NOW }
}

fn key(secret: &str) -> ZoneKey {
    ZoneKey {
        algorithm: ZoneKeyAlgorithm::EcdsaP256,
        role: ZoneKeyRole::Combined,
        sealed_secret: secret.into(),
        published: 1,
        active: 1,
        retired: None,
        removed: None,
        ds_from: Some(1),
        ds_until: None,
    }
}

fn record(n: u8, name: &str, value: &str) -> StoredZoneRecord {
    let record = ZoneRecord { name: name.into(), record_type: "TXT".into(), ttl: 60, value: value.into() };
    StoredZoneRecord { id: ZoneRecordId::from_random([n; 16]), record }
}

#[tokio::test]
async fn a_zone_changes_as_a_whole_and_its_serial_grows() {
    let (_dir, store) = store_with_account().await;
    let own = zone(2, "example.com");
    store.create_zone(&zone(1, "t.example"), &[]).await.unwrap();
    store.create_zone(&own, &[key("one")]).await.unwrap();
    let taken = store.create_zone(&zone(3, "example.com"), &[]).await.unwrap_err();
    assert!(matches!(taken, StoreError::ZoneTaken { .. }), "{taken}");
    let (one, two) = (record(1, "a.example.com", "1"), record(2, "b.example.com", "2"));
    let added = [one.clone(), two.clone()];
    let check = |served: sallyport_model::ServedZone| {
        assert_eq!((served.serial, served.records.len()), (u32::try_from(NOW).unwrap(), 2));
        Ok::<(), StoreError>(())
    };
    assert!(store.change_zone(own.id, (&added, &[]), None, NOW, check).await.unwrap());
    // What the check refuses is not changed.
    let refuse = |_| Err(StoreError::Busy);
    assert!(store.change_zone(own.id, (&[], &[one.id]), None, NOW, refuse).await.is_err());
    assert_eq!(store.zone_records(own.id).await.unwrap(), added);
    let keys = [key("one"), key("two")];
    assert!(store.change_zone(own.id, (&[], &[one.id]), Some(&keys), NOW, |_| Ok::<(), StoreError>(())).await.unwrap());
    let (stored, served) = store.whole_zone(own.id).await.unwrap().unwrap();
    assert_eq!((stored.serial, served.keys.len()), (u32::try_from(NOW).unwrap() + 1, 2));
    assert_eq!(served.records, [two.record]);
    assert_eq!(store.zones().await.unwrap().len(), 2);
    assert!(store.delete_zone(own.id).await.unwrap() && store.zone("example.com").await.unwrap().is_none());
    assert!(!store.change_zone(own.id, (&[], &[]), None, NOW, |_| Ok::<(), StoreError>(())).await.unwrap());
    // A zone goes with its organisation, and the installation's stays.
    store.create_zone(&own, &[key("one")]).await.unwrap();
    store.delete_account(account(1).account.id).await.unwrap();
    assert_eq!(store.zones().await.unwrap(), [zone(1, "t.example")]);
}
