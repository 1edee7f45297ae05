resource "sallyport_zone_record" "www" {
  zone  = "example.com"
  name  = "www"
  type  = "EDGES"
  value = ""
}
