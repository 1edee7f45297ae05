//! Members and invitations: their limits, and what is deleted with them.

use sallyport_model::{AccountId, InvitationId, Role, ScopeSet, TokenId};
use sallyport_store::{
    AccountDeletion, Invitation, InviteOutcome, MAX_INVITATIONS_PER_ORGANISATION, MAX_ORGANISATIONS_PER_ACCOUNT,
    MemberChangeOutcome, NewToken, Store, StoreError, StoredToken, WithdrawOutcome,
};

use crate::fixtures::{NOW, account, store_with_account};

fn id(n: u8) -> AccountId {
    account(n).account.id
}

fn invitation(number: u16, organisation: u8, email: &str, role: Role, by: u8) -> Invitation {
    let mut bytes = [0; 16];
    bytes[..2].copy_from_slice(&number.to_be_bytes());
    Invitation {
        id: InvitationId::from_random(bytes),
        organisation: id(organisation),
        email: email.parse().unwrap(),
        role,
        invited_by: id(by),
        created_at: NOW,
        expires_at: NOW + 100,
    }
}

fn hash(number: u16) -> [u8; 32] {
    let mut hash = [1; 32];
    hash[..2].copy_from_slice(&number.to_be_bytes());
    hash
}

/// Makes the account a member of the organisation.
async fn join(store: &Store, number: u16, organisation: u8, who: u8, role: Role) {
    let who = account(who).account;
    let new = invitation(number, organisation, who.email.as_str(), role, organisation);
    assert_eq!(store.invite(&new, hash(number)).await.unwrap(), InviteOutcome::Done);
    assert!(store.accept_invitation(&who, hash(number), NOW).await.unwrap().is_some());
}

#[tokio::test]
async fn members_come_with_invitations_and_go_with_what_was_theirs_there() {
    let (_dir, store) = store_with_account().await;
    for n in 2..=3 {
        store.create_account(account(n)).await.unwrap();
    }
    join(&store, 1, 1, 2, Role::Admin).await;
    let listed: Vec<_> =
        store.members(id(1), 0, 10).await.unwrap().into_iter().map(|(_, m)| (m.account.id, m.role)).collect();
    assert_eq!(listed, [(id(1), Role::Owner), (id(2), Role::Admin)]);
    let second = store.members(id(1), 1, 10).await.unwrap();
    assert_eq!(second.iter().map(|(_, m)| m.account.id).collect::<Vec<_>>(), [id(2)], "page by page");
    assert_eq!(store.role(id(1), id(3)).await.unwrap(), None);

    let token = StoredToken {
        id: TokenId::from_random([9; 16]),
        organisation: id(1),
        name: "t".parse().unwrap(),
        scopes: ScopeSet::all(),
        created_at: NOW,
        expires_at: None,
    };
    let new = NewToken { account: id(2), token: token.clone(), hash: [7; 32] };
    store.create_token(new.clone(), None).await.unwrap();
    assert_eq!(store.token_by_hash([7; 32]).await.unwrap().unwrap().0.organisation, id(1));
    let guest = invitation(2, 1, "guest@example.com", Role::Viewer, 2);
    assert_eq!(store.invite(&guest, hash(2)).await.unwrap(), InviteOutcome::Done);
    let too_much = invitation(3, 1, "other@example.com", Role::Owner, 2);
    assert_eq!(store.invite(&too_much, hash(3)).await.unwrap(), InviteOutcome::NotAllowed);
    // Only an owner may withdraw an owner's invitation of an owner.
    let heir = invitation(6, 1, "heir@example.com", Role::Owner, 1);
    assert_eq!(store.invite(&heir, hash(6)).await.unwrap(), InviteOutcome::Done);
    let lower = invitation(7, 1, "HEIR@example.com", Role::Viewer, 2);
    assert_eq!(store.invite(&lower, hash(7)).await.unwrap(), InviteOutcome::NotAllowed);
    assert_eq!(store.withdraw_invitation(id(1), heir.id, Role::Admin).await.unwrap(), WithdrawOutcome::NotAllowed);
    assert_eq!(store.withdraw_invitation(id(2), heir.id, Role::Owner).await.unwrap(), WithdrawOutcome::NotFound);
    assert_eq!(store.withdraw_invitation(id(1), heir.id, Role::Owner).await.unwrap(), WithdrawOutcome::Done(heir));

    assert_eq!(store.remove_member(id(1), id(2), Role::Member).await.unwrap(), MemberChangeOutcome::NotAllowed);
    assert_eq!(store.remove_member(id(1), id(1), Role::Owner).await.unwrap(), MemberChangeOutcome::Founder);
    assert_eq!(store.remove_member(id(1), id(3), Role::Owner).await.unwrap(), MemberChangeOutcome::NotFound);
    assert_eq!(store.remove_member(id(1), id(2), Role::Owner).await.unwrap(), MemberChangeOutcome::Done);
    assert!(store.token_by_hash([7; 32]).await.unwrap().is_none());
    assert!(store.invitations(id(1), NOW, 0, 10).await.unwrap().is_empty());
    assert_eq!(store.role(id(1), id(2)).await.unwrap(), None);
    // A member removed between the check and the change can create nothing more.
    assert!(matches!(store.create_token(new, None).await, Err(StoreError::Gone)));
    assert_eq!(store.invite(&guest, hash(4)).await.unwrap(), InviteOutcome::NotAllowed);
}

#[tokio::test]
async fn accounts_with_others_in_their_organisation_stay_and_others_go_with_their_memberships() {
    let (_dir, store) = store_with_account().await;
    store.create_account(account(2)).await.unwrap();
    join(&store, 1, 1, 2, Role::Viewer).await;
    assert_eq!(store.delete_account(id(1)).await.unwrap(), AccountDeletion::HasMembers { others: 1 });
    assert_eq!(store.delete_account(id(2)).await.unwrap(), AccountDeletion::Done { sockets: Vec::new() });
    assert_eq!(store.members(id(1), 0, 10).await.unwrap().len(), 1);
    assert_eq!(store.delete_account(id(2)).await.unwrap(), AccountDeletion::NotFound);
    assert_eq!(store.delete_account(id(1)).await.unwrap(), AccountDeletion::Done { sockets: Vec::new() });
}

#[tokio::test]
async fn there_are_bounds_and_what_is_over_makes_room() {
    let (_dir, store) = store_with_account().await;
    for n in 0..MAX_INVITATIONS_PER_ORGANISATION as u16 {
        let new = invitation(n, 1, &format!("g{n}@example.com"), Role::Viewer, 1);
        assert_eq!(store.invite(&new, hash(n)).await.unwrap(), InviteOutcome::Done);
    }
    let one_more = invitation(500, 1, "more@example.com", Role::Viewer, 1);
    let error = store.invite(&one_more, hash(500)).await.unwrap_err();
    assert!(matches!(error, StoreError::Limit { max: MAX_INVITATIONS_PER_ORGANISATION, .. }), "{error}");
    // A second invitation to the same address takes no more room.
    let again = invitation(501, 1, "G7@EXAMPLE.com", Role::Member, 1);
    assert_eq!(store.invite(&again, hash(501)).await.unwrap(), InviteOutcome::Done);
    let later = Invitation { created_at: NOW + 100, expires_at: NOW + 200, ..one_more };
    assert_eq!(store.invite(&later, hash(500)).await.unwrap(), InviteOutcome::Done);
    assert_eq!(store.invitations(id(1), NOW + 100, 0, 200).await.unwrap().len(), 1);

    store.create_account(account(2)).await.unwrap();
    for n in 0..=MAX_ORGANISATIONS_PER_ACCOUNT as u8 {
        let founder = account(100 + n);
        store.create_account(founder).await.unwrap();
        let number = 1_000 + u16::from(n);
        let new = invitation(number, 100 + n, "a2@example.com", Role::Viewer, 100 + n);
        store.invite(&new, hash(number)).await.unwrap();
        let joined = store.accept_invitation(&account(2).account, hash(number), NOW).await;
        if usize::from(n) < MAX_ORGANISATIONS_PER_ACCOUNT {
            assert!(joined.unwrap().is_some());
        } else {
            assert!(matches!(joined, Err(StoreError::Limit { max: MAX_ORGANISATIONS_PER_ACCOUNT, .. })));
            assert_eq!(store.invitations_of(&new.email, NOW, 10).await.unwrap().len(), 1, "it stays open");
        }
    }
    let all = store.memberships(id(2)).await.unwrap();
    assert_eq!((all.len(), all[0].organisation), (MAX_ORGANISATIONS_PER_ACCOUNT + 1, id(2)));
}
