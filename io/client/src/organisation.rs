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
    /// The organisations of the account.
    ///
    /// # Errors
    /// See [`ClientError`], as for every call below.
    pub async fn organisations(&self) -> Result<Vec<Organisation>, ClientError> {
        self.list("/v1/organisations").await
    }

    /// The organisation of the client.
    ///
    /// # Errors
    /// The account is not a member.
    pub async fn organisation(&self) -> Result<Organisation, ClientError> {
        self.get("/v1/organisation").await
    }

    /// Changes the organisation of the client.
    ///
    /// # Errors
    /// The role lacks permission.
    pub async fn update_organisation(&self, update: &UpdateOrganisation) -> Result<Organisation, ClientError> {
        self.send(Method::PATCH, "/v1/organisation", update).await
    }

    /// Leaves the organisation of the client.
    ///
    /// # Errors
    /// It is the account's own organisation.
    pub async fn leave_organisation(&self) -> Result<(), ClientError> {
        self.call(Call { method: Method::POST, path: "/v1/organisation/leave", body: Bytes::new(), key: None }).await
    }

    /// All members of the organisation.
    ///
    /// # Errors
    /// The account is not a member.
    pub async fn members(&self) -> Result<Vec<Member>, ClientError> {
        self.list("/v1/members").await
    }

    /// Changes the role of a member, given by id or e-mail address.
    ///
    /// # Errors
    /// There is no such member, or the caller's role lacks permission.
    pub async fn update_member(&self, member: &str, update: &UpdateMember) -> Result<Member, ClientError> {
        self.send(Method::PATCH, &format!("/v1/members/{}", path_segment(member)), update).await
    }

    /// Removes a member, given by id or e-mail address.
    ///
    /// # Errors
    /// There is no such member, or the caller's role lacks permission.
    pub async fn delete_member(&self, member: &str) -> Result<(), ClientError> {
        self.delete(&format!("/v1/members/{}", path_segment(member))).await
    }

    /// The open invitations of the organisation.
    ///
    /// # Errors
    /// The account is not a member.
    pub async fn invitations(&self) -> Result<Vec<Invitation>, ClientError> {
        self.list("/v1/invitations").await
    }

    /// Invites an e-mail address into the organisation.
    ///
    /// # Errors
    /// The role lacks permission, or the address is that of a member.
    pub async fn invite(&self, invitation: &CreateInvitation) -> Result<CreatedInvitation, ClientError> {
        self.send(Method::POST, "/v1/invitations", invitation).await
    }

    /// Withdraws an invitation of the organisation.
    ///
    /// # Errors
    /// There is none with this id.
    pub async fn withdraw_invitation(&self, id: InvitationId) -> Result<(), ClientError> {
        self.delete(&format!("/v1/invitations/{id}")).await
    }

    /// The received invitations of the account.
    ///
    /// # Errors
    /// There is no login.
    pub async fn received_invitations(&self) -> Result<Vec<ReceivedInvitation>, ClientError> {
        self.list("/v1/account/invitations").await
    }

    /// Accepts the invitation with this code.
    ///
    /// # Errors
    /// The account has no open invitation with this code.
    pub async fn accept_invitation(&self, accept: &AcceptInvitation) -> Result<Organisation, ClientError> {
        self.send(Method::POST, "/v1/account/invitations/accept", accept).await
    }

    /// Declines a received invitation.
    ///
    /// # Errors
    /// There is none with this id.
    pub async fn decline_invitation(&self, id: InvitationId) -> Result<(), ClientError> {
        self.delete(&format!("/v1/account/invitations/{id}")).await
    }
}
