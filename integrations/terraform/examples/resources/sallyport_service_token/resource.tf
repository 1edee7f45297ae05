resource "sallyport_service_token" "backup" {
  name  = "backup"
  scope = { paths = ["/dumps"], read_only = true }
}

resource "sallyport_policy" "backup" {
  name     = "backup"
  document = jsonencode({ allow = [{ who = { service_tokens = [sallyport_service_token.backup.name] } }] })
}
