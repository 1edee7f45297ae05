data "sallyport_policies" "web" {
  labels = { team = "web" }
}

resource "sallyport_socket" "shop" {
  name     = "shop"
  identity = {}
  policies = data.sallyport_policies.web.policies[*].name
}
