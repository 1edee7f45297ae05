resource "sallyport_policy" "networks" {
  name     = "networks"
  document = jsonencode({ deny = [{ where = ["198.51.100.0/24"] }] })
}

# All sockets of the organisation, future ones included.
resource "sallyport_policy_attachment" "all" {
  policy_id  = sallyport_policy.networks.id
  everywhere = true
}
