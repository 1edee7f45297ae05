//! Organisations, their members and invitations.

use bytes::Bytes;
use http::Method;
use sallyport_api::{
    AcceptInvitation, CreateInvitation, CreatedInvitation, Invitation, Member, Organisation, ReceivedInvitation,
    UpdateMember, UpdateOrganisation,
};
use sallyport_model::InvitationId;

use crate::{
    ApiClient, ClientError,
    client::{Call, path_segment},
};

impl ApiClient {
    /// The organisations that the account belongs to.
    ///
    /// # Errors
    /// See [`ClientError`], as for every call below.
    pub async fn organisations(&self) -> Result<Vec<Organisation>, ClientError> {
        self.list("/v1/organisations").await
    }

    /// The organisation that the client acts for.
    ///
    /// # Errors
    /// The account does not belong to it.
    pub async fn organisation(&self) -> Result<Organisation, ClientError> {
        self.get("/v1/organisation").await
    }

    /// Changes the organisation that the client acts for.
    ///
    /// # Errors
    /// The role does not allow it.
    pub async fn update_organisation(&self, update: &UpdateOrganisation) -> Result<Organisation, ClientError> {
        self.send(Method::PATCH, "/v1/organisation", update).await
    }

    /// Leaves the organisation that the client acts for.
    ///
    /// # Errors
    /// It is the account's own.
    pub async fn leave_organisation(&self) -> Result<(), ClientError> {
        self.call(Call { method: Method::POST, path: "/v1/organisation/leave", body: Bytes::new(), key: None }).await
    }

    /// All who belong to the organisation.
    ///
    /// # Errors
    /// The account does not.
    pub async fn members(&self) -> Result<Vec<Member>, ClientError> {
        self.list("/v1/members").await
    }

    /// Gives a member, by id or e-mail address, another role.
    ///
    /// # Errors
    /// There is no such member, or the own role does not allow it.
    pub async fn update_member(&self, member: &str, update: &UpdateMember) -> Result<Member, ClientError> {
        self.send(Method::PATCH, &format!("/v1/members/{}", path_segment(member)), update).await
    }

    /// Sends a member, by id or e-mail address, away.
    ///
    /// # Errors
    /// There is no such member, or the own role does not allow it.
    pub async fn delete_member(&self, member: &str) -> Result<(), ClientError> {
        self.delete(&format!("/v1/members/{}", path_segment(member))).await
    }

    /// The invitations of the organisation that are open.
    ///
    /// # Errors
    /// The account does not belong to it.
    pub async fn invitations(&self) -> Result<Vec<Invitation>, ClientError> {
        self.list("/v1/invitations").await
    }

    /// Invites somebody into the organisation.
    ///
    /// # Errors
    /// The role does not allow it, or they belong to it already.
    pub async fn invite(&self, invitation: &CreateInvitation) -> Result<CreatedInvitation, ClientError> {
        self.send(Method::POST, "/v1/invitations", invitation).await
    }

    /// Takes an invitation of the organisation back.
    ///
    /// # Errors
    /// There is none with this id.
    pub async fn withdraw_invitation(&self, id: InvitationId) -> Result<(), ClientError> {
        self.delete(&format!("/v1/invitations/{id}")).await
    }

    /// The invitations that the account has.
    ///
    /// # Errors
    /// Nobody is logged in.
    pub async fn received_invitations(&self) -> Result<Vec<ReceivedInvitation>, ClientError> {
        self.list("/v1/account/invitations").await
    }

    /// Accepts the invitation with this code.
    ///
    /// # Errors
    /// There is none that is open with this code for this account.
    pub async fn accept_invitation(&self, accept: &AcceptInvitation) -> Result<Organisation, ClientError> {
        self.send(Method::POST, "/v1/account/invitations/accept", accept).await
    }

    /// Declines an invitation that the account has.
    ///
    /// # Errors
    /// There is none with this id.
    pub async fn decline_invitation(&self, id: InvitationId) -> Result<(), ClientError> {
        self.delete(&format!("/v1/account/invitations/{id}")).await
    }
}
