//! Device logins: programs that wait for a person's approval.

use sallyport_model::{AccountId, LoginSessionId, SocketId};
use sallyport_store::{DeviceAnswer, MAX_DEVICE_LOGINS_OF_ORGANISATION, NewDeviceLogin};

use crate::fixtures::{NOW, account, store_with_account};

fn login(code: &str, device: u16, organisation: AccountId) -> NewDeviceLogin {
    let mut hash = [0; 32];
    hash[..2].copy_from_slice(&device.to_be_bytes());
    NewDeviceLogin {
        code: code.to_owned(),
        device: hash,
        organisation,
        socket: SocketId::from_random([1; 16]),
        client: "192.0.2.1".to_owned(),
        expires_at: NOW + 600,
    }
}

#[tokio::test]
async fn a_program_learns_the_answer_once() {
    let (_dir, store) = store_with_account().await;
    let (own, session) = (account(1).account.id, LoginSessionId::from_random([2; 16]));
    let new = login("BCDFGHJK", 7, own);
    assert!(store.begin_device_login(&new, NOW).await.unwrap());
    assert!(!store.begin_device_login(&login("BCDFGHJK", 8, own), NOW).await.unwrap(), "a code is one's");
    let waiting = store.device_login("BCDFGHJK", NOW).await.unwrap().unwrap();
    assert_eq!((waiting.socket, waiting.client.as_str()), (new.socket, "192.0.2.1"));
    assert_eq!(store.take_device_answer(new.device, NOW).await.unwrap(), Some(DeviceAnswer::Pending));
    assert!(store.answer_device_login("BCDFGHJK", Some(session), NOW).await.unwrap());
    assert!(!store.answer_device_login("BCDFGHJK", None, NOW).await.unwrap(), "an answer stands");
    assert_eq!(store.device_login("BCDFGHJK", NOW).await.unwrap(), None);
    let (one, two) = tokio::join!(store.take_device_answer(new.device, NOW), store.take_device_answer(new.device, NOW));
    let answers: Vec<_> = [one.unwrap(), two.unwrap()].into_iter().flatten().collect();
    assert_eq!(answers, [DeviceAnswer::Agreed(session, new.socket)], "once");
    assert!(store.begin_device_login(&new, NOW).await.unwrap());
    assert!(store.answer_device_login("BCDFGHJK", None, NOW).await.unwrap());
    assert_eq!(store.take_device_answer(new.device, NOW).await.unwrap(), Some(DeviceAnswer::Denied));
    assert_eq!(store.take_device_answer(new.device, NOW).await.unwrap(), None);
}

#[tokio::test]
async fn unanswered_logins_expire_and_organisations_have_limits() {
    let (_dir, store) = store_with_account().await;
    store.create_account(account(2)).await.unwrap();
    let (own, other) = (account(1).account.id, account(2).account.id);
    for n in 0..MAX_DEVICE_LOGINS_OF_ORGANISATION as u16 {
        assert!(store.begin_device_login(&login(&format!("of-one-{n}"), n, own), NOW).await.unwrap());
    }
    assert!(!store.begin_device_login(&login("more", 9_000, own), NOW).await.unwrap(), "no more of one organisation");
    assert!(store.begin_device_login(&login("other", 9_001, other), NOW).await.unwrap(), "others have theirs");
    let late = NOW + 600;
    assert_eq!(store.device_login("other", late).await.unwrap(), None);
    assert!(!store.answer_device_login("other", None, late).await.unwrap());
    assert_eq!(store.take_device_answer(login("other", 9_001, other).device, late).await.unwrap(), None);
    assert!(store.begin_device_login(&login("more", 9_000, own), late).await.unwrap(), "those that ended make room");
}
