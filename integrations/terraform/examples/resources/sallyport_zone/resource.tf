# The domain must be verified before.
resource "sallyport_zone" "example" {
  name = "example.com"
}

output "at_the_parent" {
  value = { ns = sallyport_zone.example.name_servers, ds = sallyport_zone.example.ds }
}
