resource "sallyport_zone_record" "mail" {
  zone  = sallyport_zone.example.name
  name  = "@"
  type  = "MX"
  value = "10 mail.example.net."
  ttl   = 3600
}
