variable "client_secret" {
  type      = string
  ephemeral = true
}

# Another version has the client secret sent again. Logins go on.
resource "sallyport_identity_provider" "work" {
  name                     = "work"
  kind                     = "oidc"
  issuer                   = "https://login.example.com/realms/work"
  client_id                = "sallyport"
  client_secret_wo         = var.client_secret
  client_secret_wo_version = 1
}
