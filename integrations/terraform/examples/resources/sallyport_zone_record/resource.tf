resource "sallyport_zone_record" "mail" {
  zone  = "example.com"
  name  = "@"
  type  = "MX"
  value = "10 mail.example.net."
  ttl   = 3600
}
