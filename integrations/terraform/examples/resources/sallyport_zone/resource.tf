resource "sallyport_zone" "example" {
  name = "example.com" # a verified domain
}
