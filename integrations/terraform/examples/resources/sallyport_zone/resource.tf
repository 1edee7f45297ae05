resource "sallyport_zone" "example" {
  name = "example.com" # a verified domain
}

output "at_the_parent" {
  value = { ns = sallyport_zone.example.name_servers, ds = sallyport_zone.example.ds }
}
