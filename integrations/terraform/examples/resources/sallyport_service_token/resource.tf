resource "sallyport_service_token" "ci" {
  name  = "ci"
  scope = { paths = ["/api"], methods = ["GET", "POST"] }
}

# The secret, in the run that makes the token: for a secret store.
ephemeral "sallyport_initial_secret" "ci" {
  id = sallyport_service_token.ci.id
}
